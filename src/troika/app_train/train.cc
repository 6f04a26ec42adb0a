// troika train: performs a TrainRequest.
#include "troika/train/trainer.h"

#include <fmt/format.h>

#include "troika/app_train/status.h"
#include "troika/base/error.h"
#include "troika/base/request.h"
#include "troika/trace/draw.h"

namespace troika {
namespace {

std::string drawing(const TrainReport& report, bool json) {
  const std::string title = fmt::format(
      "{}, {} rank{}",
      report.traced_steps == 1 ? "one training step"
                               : fmt::format("a window of {} training steps", report.traced_steps),
      report.trace.ranks, report.trace.ranks == 1 ? "" : "s");
  if (json) return chrome_json(report.trace, title, {.mesh = report.mesh});
  if (report.lanes.spans.empty()) return draw_svg({report.trace}, {title});
  return draw_svg({report.simulated, report.lanes},
                  {"predicted: the measured passes, with nothing lost between them", "measured: " + title});
}

int train_command(const TrainRequest& request) {
  const Recipe recipe = load_recipe(request);
  const Path trace_folder = Path(request.trace).parent_path();
  if (!trace_folder.empty() && !std::filesystem::is_directory(trace_folder)) {
    fail_usage("--trace {}: there is no folder {}", request.trace, trace_folder.string());
  }
  TrainOptions options;
  options.run_dir = request.run_dir.empty() ? default_run_dir(request.recipe) : Path(request.run_dir);
  options.resume = request.resume;
  options.overwrite = request.overwrite;
  options.quiet = request.quiet;
  options.record_trace = !request.trace.empty();
  const TrainReport report = train(recipe, options);
  if (request.json) {
    fmt::print("{}\n", report_json(report));
  } else {
    fmt::print("{}", report_text(report));
  }
  if (options.record_trace) {
    write_whole(request.trace, drawing(report, Path(request.trace).extension() == ".json"));
  }
  return report.finished ? 0 : 1;
}

}  // namespace
}  // namespace troika

extern "C" int troika_train(const troika::TrainRequest& request) {
  return troika::status_of([&request] { return troika::train_command(request); });
}
