// troika train: performs a TrainRequest.
#include "troika/train/trainer.h"

#include <fmt/format.h>

#include "troika/app_train/status.h"
#include "troika/base/request.h"

namespace troika {
namespace {

int train_command(const TrainRequest& request) {
  const Recipe recipe = load_recipe(request);
  TrainOptions options;
  options.run_dir = request.run_dir.empty() ? default_run_dir(request.recipe) : Path(request.run_dir);
  options.resume = request.resume;
  options.overwrite = request.overwrite;
  options.quiet = request.quiet;
  options.trace = request.trace;
  const TrainReport report = train(recipe, options);
  if (request.json) {
    fmt::print("{}\n", report_json(report));
  } else {
    fmt::print("{}", report_text(report));
  }
  return report.finished ? 0 : 1;
}

}  // namespace
}  // namespace troika

extern "C" int troika_train(const troika::TrainRequest& request) {
  return troika::status_of([&request] { return troika::train_command(request); });
}
