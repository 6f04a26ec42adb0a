// troika demo: the whole story on real data, in the order a newcomer would do it: pack the CSV, train with a
// plain LibTorch loop, on one rank and on many, show that the results are equal, and draw a step of both
// runs.
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>

#include "troika/app_train/plain_loop.h"
#include "troika/app_train/status.h"
#include "troika/app_train/verify_work.h"
#include "troika/base/cpu.h"
#include "troika/base/error.h"
#include "troika/base/file.h"
#include "troika/base/progress.h"
#include "troika/base/request.h"
#include "troika/base/text.h"
#include "troika/trace/draw.h"
#include "troika/train/report_metrics.h"
#include "troika/train/trainer.h"

namespace troika {
namespace {

using Json = nlohmann::ordered_json;

/// Runs this command again with other arguments and returns what it prints on standard output: a process of
/// its own, so that the memory it reports is its own.
std::string run_self(std::vector<std::string> arguments) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail("can't make a pipe: {}", system_message(errno));
  const FileHandle reader(ends[0]);
  FileHandle writer(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, writer.get(), STDOUT_FILENO);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_t child = 0;
  const int error = ::posix_spawn(&child, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) fail("can't start {}: {}", arguments[1], system_message(error));
  writer.close();
  std::string out;
  std::array<char, 4096> buffer;
  ssize_t got;
  while ((got = ::read(reader.get(), buffer.data(), buffer.size())) > 0)
    out.append(buffer.data(), static_cast<size_t>(got));
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    fail("troika {} failed; its message is above", arguments[1]);
  return out;
}

struct Row {
  std::string name;
  double samples_per_s = 0;
  double train_loss = 0;
};

struct Demo {
  Json pack;
  std::vector<Row> rows;
  TrainReport one, many;
  VerifyResult verified;
  std::optional<Metrics> guess;  // of the column that is the obvious guess of the target
  std::string target, guess_column, picture;
  int64_t train_samples = 0;
};

/// Every rank computes with one thread, so that the table compares ranks with ranks; the plain loop with all
/// threads has a row of its own.
constexpr const char* kOneThread = "parallel.threads_per_rank=1";

TrainReport train_with(const DemoRequest& request, int ranks) {
  RecipeRequest recipe;
  recipe.recipe = request.recipe;
  recipe.ranks = ranks;
  recipe.settings = {kOneThread};
  TrainOptions options;
  options.run_dir = Path(request.output) / fmt::format("{}-rank{}", ranks, ranks == 1 ? "" : "s");
  options.overwrite = true;
  options.record_trace = true;
  fmt::print(stderr, "\n== troika train {} --ranks {} ==\n", request.recipe, ranks);
  TrainReport report = train(load_recipe(recipe), options);
  if (!report.finished) fail("stopped; run it again when you like");
  return report;
}

Workload workload_with(const DemoRequest& request, int ranks) {
  RecipeRequest recipe;
  recipe.recipe = request.recipe;
  recipe.ranks = ranks;
  return prepare(load_recipe(recipe));
}

Row row_of(const TrainReport& report) {
  return {
      fmt::format("troika, {} rank{} x {} thread{}", report.mesh.ranks(), report.mesh.ranks() == 1 ? "" : "s",
                  report.threads_per_rank, report.threads_per_rank == 1 ? "" : "s"),
      report.samples_per_s, report.train_loss};
}

void add_plain_rows(const Workload& work, int cores, Demo& demo) {
  for (const int threads : {1, cores}) {
    const std::string name =
        fmt::format("plain LibTorch loop, {} thread{}", threads, threads == 1 ? "" : "s");
    fmt::print(stderr, "\n== {} ==\n", name);
    const PlainLoopReport plain = run_plain_loop(work, threads);
    demo.rows.push_back({name, plain.samples_per_s, plain.train_loss});
    if (cores == 1) break;
  }
}

std::string table(const Demo& demo) {
  std::string out =
      fmt::format("{:<36}{:>14}{:>14}{:>12}{:>10}\n", "", "s per epoch", "samples/s", "train loss", "speed");
  for (const Row& row : demo.rows) {
    out += fmt::format("{:<36}{:>14.2f}{:>14}{:>12.5f}{:>9.2f}x\n", row.name,
                       static_cast<double>(demo.train_samples) / row.samples_per_s,
                       with_commas(static_cast<int64_t>(row.samples_per_s)), row.train_loss,
                       row.samples_per_s / demo.rows[0].samples_per_s);
  }
  return out;
}

std::string text_of(const Demo& demo) {
  const double seconds = demo.pack["seconds"];
  const double bytes = demo.pack["bytes_in"];
  std::string out = fmt::format(
      "\nPacked {} rows ({} of CSV) in {}: {:.0f} MB/s, {} of memory, {} rejected\n\n",
      with_commas(demo.pack["rows"]), human_bytes(bytes), human_seconds(seconds), bytes / seconds / 1e6,
      human_bytes(demo.pack["peak_rss_bytes"]), demo.pack["rejected"].dump());
  out += table(demo);
  out += fmt::format(
      "\nEqual: {} ranks against the plain run, float64: {} (largest relative difference {:.1g}, tolerance "
      "{:.0g})\n"
      "       {} ranks against one thread doing the same pieces, float32: {}\n",
      demo.many.mesh.ranks(), demo.verified.equal ? "yes" : "NO", demo.verified.max_rel_diff,
      demo.verified.tolerance, demo.many.mesh.ranks(),
      demo.verified.bitwise ? "bit for bit" : "NOT bit for bit");
  const TrainReport& many = demo.many;
  out += fmt::format("\nErrors of the run on {} ranks, in the unit of {} (on one rank: {}):\n",
                     many.mesh.ranks(), demo.target, to_string(*demo.one.test));
  out += metrics_text({{}, many.test, many.baselines, many.seconds_between_rows});
  if (demo.guess) {
    out +=
        fmt::format("  obvious guess, {} = {}: {}\n", demo.target, demo.guess_column, to_string(*demo.guess));
  }
  return out + fmt::format("\nOne training step of both runs, drawn: {}\n", demo.picture);
}

std::string json_of(const Demo& demo) {
  Json json;
  json["pack"] = demo.pack;
  for (const Row& row : demo.rows) {
    json["runs"].push_back(
        {{"name", row.name},
         {"seconds_per_epoch", static_cast<double>(demo.train_samples) / row.samples_per_s},
         {"samples_per_s", row.samples_per_s},
         {"train_loss", row.train_loss}});
  }
  json["equal"] = demo.verified.equal;
  json["bitwise"] = demo.verified.bitwise;
  json["max_rel_diff"] = demo.verified.max_rel_diff;
  json["test"] = to_json(*demo.many.test);
  json["baseline"] = demo.guess ? to_json(*demo.guess) : Json();
  json["picture"] = demo.picture;
  return json.dump(2);
}

int demo_command(const DemoRequest& request) {
  Demo demo;
  RecipeRequest plain_request;
  plain_request.recipe = request.recipe;
  const Recipe recipe = load_recipe(plain_request);
  const int cores = usable_cores();
  const int ranks = request.ranks.value_or(std::max(2, cores));
  std::filesystem::create_directories(request.output);

  fmt::print(stderr, "== troika pack {} -o {} ==\n", request.csv, recipe.data.path);
  demo.pack =
      Json::parse(run_self({"troika", "pack", request.csv, "-o", recipe.data.path, "--overwrite", "--json"}));

  const Workload work = workload_with(request, ranks);
  demo.train_samples = work.train_samples;
  demo.target = work.recipe.data.targets.at(0);
  add_plain_rows(work, cores, demo);
  demo.one = train_with(request, 1);
  demo.many = train_with(request, ranks);
  demo.rows.push_back(row_of(demo.one));
  demo.rows.push_back(row_of(demo.many));

  fmt::print(stderr, "\n== troika verify {} --ranks {} ==\n", request.recipe, ranks);
  demo.verified = verify(verify_work(work, 3), at::kDouble);
  if (!request.guess.empty()) {
    demo.guess_column = request.guess;
    demo.guess = evaluate_column_baseline(work.dataset, work.split.test, demo.target, request.guess);
  }
  demo.picture = (Path(request.output) / "step.svg").string();
  write_whole(demo.picture,
              draw_svg({demo.one.trace, demo.many.trace},
                       {"One training step on one rank", fmt::format("The same step on {} ranks", ranks)}));
  if (request.json) {
    fmt::print("{}\n", json_of(demo));
  } else {
    fmt::print("{}", text_of(demo));
  }
  return demo.verified.equal && demo.verified.bitwise ? 0 : 1;
}

}  // namespace
}  // namespace troika

extern "C" int troika_demo(const troika::DemoRequest& request) {
  return troika::status_of([&] { return troika::demo_command(request); });
}
