// troika train, verify, demo: their command lines. What they do is in app_train.
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "troika/app/commands.h"
#include "troika/app/plugin.h"
#include "troika/base/request.h"

namespace troika {
namespace {

template <typename Request>
void add_recipe_options(CLI::App& command, Request& request) {
  command.add_option("recipe", request.recipe, "The recipe (TOML)")->required()->type_name("RECIPE.toml");
  command
      .add_option("--set", request.settings, "Set a recipe key, the value as in TOML: --set train.steps=5")
      ->type_name("KEY=VALUE")
      ->take_all()
      ->allow_extra_args(false);
  command.add_option("--mesh", request.mesh, "Degrees of parallelism: auto, or data=2,pipeline=1,tensor=1");
  command.add_option("--weights", request.weights, "One copy for all thread ranks, or one each")
      ->check(CLI::IsMember({"shared", "replicated"}));
  command
      .add_option("--schedule", request.schedule,
                  "Order of a pipeline's passes: a name (troika schedule list) or a file; default 1f1b")
      ->type_name("NAME|FILE");
  command.add_option("--micro-batches", request.micro_batches, "Pieces that each global batch is cut into")
      ->check(CLI::Range(1, 1 << 20));
  command
      .add_option("--deadline", request.deadline,
                  "Seconds without a sign of life before a rank counts as silent")
      ->check(CLI::Range(0.1, 1e6))
      ->check([](const std::string& text) {  // a range lets it through: it is neither less nor more
        return std::isnan(std::strtod(text.c_str(), nullptr)) ? text + " is no number of seconds" : "";
      });
  command.add_flag("--json", request.json,
                   "Print one JSON object on standard output, and nothing else there");
  command.add_flag("--quiet", request.quiet, "No progress");
}

template <typename Request>
void add_ranks(CLI::App& command, Request& request, const char* what) {
  command.add_option("--ranks", request.ranks, what)->check(CLI::Range(1, 4096));
}

/// "auto" stands for the keys that leave the choice to a trial.
void add_ranks_or_auto(CLI::App& command, TrainRequest& request) {
  const auto take = [&request](const std::string& text) {
    request.ranks.reset();
    if (text == "auto") {
      request.settings.insert(request.settings.end(),
                              {R"(parallel.ranks="auto")", R"(parallel.mesh="auto")"});
      return;
    }
    int ranks = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ranks);
    if (error != std::errc() || end != text.data() + text.size() || ranks < 1 || ranks > 4096) {
      throw CLI::ValidationError("--ranks", text + " is neither auto nor a number from 1 to 4096");
    }
    request.ranks = ranks;
  };
  command
      .add_option_function<std::string>("--ranks", take,
                                        "Number of ranks, or auto: the fastest in a short trial (default)")
      ->type_name("N|auto");
}

template <typename Request>
void call_plugin(const char* symbol, const Request& request) {
  const int status = plugin_function<int (*)(const Request&)>(symbol)(request);
  if (status != 0) throw ExitStatus{status};
}

}  // namespace

void add_train(CLI::App& app) {
  auto* const command =
      app.add_subcommand("train", "Train a model, on one rank or many, with the same result");
  const auto request = std::make_shared<TrainRequest>();
  add_recipe_options(*command, *request);
  add_ranks_or_auto(*command, *request);
  command->add_option("--run-dir", request->run_dir, "Where the run is kept (default: runs/NAME)")
      ->type_name("DIR");
  command->add_flag("--resume", request->resume, "Go on from the run's last checkpoint");
  command->add_flag("--overwrite", request->overwrite, "Replace the run that is there")->excludes("--resume");
  command
      ->add_option(
          "--trace", request->trace,
          "Draw one training step to this SVG file, or write its events to this JSON file (Chrome, Perfetto)")
      ->type_name("FILE.svg");
  command->footer("Example: troika train examples/flights/recipe.toml --ranks 2 --set train.epochs=1");
  command->callback([request] { call_plugin("troika_train", *request); });
}

void add_verify(CLI::App& app) {
  auto* const command =
      app.add_subcommand("verify", "Prove that the parallel run equals the serial one, on your model");
  const auto request = std::make_shared<VerifyRequest>();
  add_recipe_options(*command, *request);
  add_ranks(*command, *request, "Number of ranks; without --mesh all data-parallel");
  command->add_option("--steps", request->steps, "Steps to compare")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_option("--precision", request->precision, "Of the comparison with the plain run")
      ->check(CLI::IsMember({"float64", "float32"}))
      ->capture_default_str();
  command->footer("Example: troika verify examples/flights/recipe.toml --ranks 2 --json");
  command->callback([request] { call_plugin("troika_verify", *request); });
}

void add_demo(CLI::App& app) {
  auto* const command =
      app.add_subcommand("demo", "Pack a CSV, train on one rank and on many, compare and draw both");
  const auto request = std::make_shared<DemoRequest>();
  command->add_option("recipe", request->recipe, "The recipe (TOML)")->required()->type_name("RECIPE.toml");
  command->add_option("--csv", request->csv, "The CSV to pack to the recipe's data path")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("--guess", request->guess, "A column that is an obvious guess of the target, to be beaten")
      ->type_name("COLUMN");
  command->add_option("--output", request->output, "Folder for runs and the picture")
      ->required()
      ->type_name("DIR");
  add_ranks(*command, *request, "Ranks of the parallel run (default: all cores)");
  command->add_flag("--json", request->json,
                    "Print one JSON object on standard output, and nothing else there");
  command->footer(
      "Example: troika demo examples/flights/recipe.toml --csv flights.csv.zip --output build/demo");
  command->callback([request] { call_plugin("troika_demo", *request); });
}

}  // namespace troika
