// troika predict: its command line. What it does is in app_train.
#include "troika/app/commands.h"
#include "troika/app/plugin.h"
#include "troika/base/request.h"

namespace troika {

void add_predict(CLI::App& app) {
  auto* const command =
      app.add_subcommand("predict", "Write a trained run's predictions for a dataset to a CSV");
  const auto request = std::make_shared<PredictRequest>();
  command->add_option("run", request->run, "The run directory that train wrote")
      ->required()
      ->type_name("RUN");
  command
      ->add_option("data", request->data, "A dataset with the same columns (troika pack NEW.csv --like OLD)")
      ->required()
      ->type_name("DATASET");
  command->add_option("-o,--output", request->output, "The CSV to write; - for standard output")
      ->required()
      ->type_name("FILE.csv");
  command
      ->add_option("--part", request->part,
                   "Which rows: all, or a part of the data as the run's recipe splits it")
      ->check(CLI::IsMember({"all", "train", "validation", "test"}))
      ->capture_default_str();
  command->add_flag("--overwrite", request->overwrite, "Replace the output if it is there");
  command->add_flag("--json", request->json,
                    "Print one JSON object on standard output, and nothing else there");
  command->add_flag("--quiet", request->quiet, "No progress");
  command->footer("Example: troika predict runs/flights flights --part test -o predictions.csv");
  command->callback([request] {
    const int status = plugin_function<int (*)(const PredictRequest&)>("troika_predict")(*request);
    if (status != 0) throw ExitStatus{status};
  });
}

}  // namespace troika
