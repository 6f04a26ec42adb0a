// troika predict: performs a PredictRequest.
#include "troika/train/predict.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "troika/app_train/status.h"
#include "troika/base/error.h"
#include "troika/base/request.h"
#include "troika/base/text.h"

namespace troika {
namespace {

int predict_command(const PredictRequest& request) {
  PredictOptions options;
  options.run_dir = request.run;
  options.data = request.data;
  options.output = request.output;
  options.part = request.part;
  options.overwrite = request.overwrite;
  options.quiet = request.quiet;
  if (request.json && request.output == "-") {
    fail_usage("--json and -o - both want standard output; write the predictions to a file");
  }
  const PredictReport report = predict(options);
  if (request.json) {
    const nlohmann::ordered_json json{
        {"predictions", report.predictions},  {"columns", report.columns},
        {"seconds", report.seconds},          {"samples_per_s", report.samples_per_s},
        {"weights", report.weights.string()}, {"output", report.output.string()}};
    fmt::print("{}\n", json.dump(2));
  } else if (request.output != "-" && !request.quiet) {
    fmt::print("{} predictions in {} ({:.0f} samples/s) with {}: {}\n", with_commas(report.predictions),
               human_seconds(report.seconds), report.samples_per_s, report.weights.string(),
               report.output.string());
  }
  return 0;
}

}  // namespace
}  // namespace troika

extern "C" int troika_predict(const troika::PredictRequest& request) {
  return troika::status_of([&] { return troika::predict_command(request); });
}
