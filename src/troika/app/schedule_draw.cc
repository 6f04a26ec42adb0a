// troika schedule draw: a schedule as a picture, or as the text that `check` reads.
#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>

#include "troika/app/schedule.h"
#include "troika/app/schedule_report.h"
#include "troika/base/error.h"
#include "troika/base/file.h"
#include "troika/base/text.h"
#include "troika/schedule/passes.h"
#include "troika/schedule/schedule_text.h"
#include "troika/schedule/torch_csv.h"
#include "troika/trace/draw.h"

namespace troika {
namespace {

struct DrawOptions : ScheduleOptions {
  std::string output, format;
  bool messages = false, whole_step = false;
  int width = 0;
};

constexpr int kLeastWidth = 20, kMostWidth = 100'000;

int width_of_output(const DrawOptions& options) {
  if (options.width > 0) return options.width;
  if (const char* const columns = std::getenv("COLUMNS")) {
    int width = 0;
    const std::string_view text(columns);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), width);
    if (error == std::errc() && end == text.data() + text.size() && width > 0) {
      return std::clamp(width, kLeastWidth, kMostWidth);
    }
  }
  winsize window{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0) {
    return std::max<int>(window.ws_col, kLeastWidth);
  }
  return 100;
}

// no-color.org's rule: set and not empty.
bool colours() {
  const char* const no_colour = std::getenv("NO_COLOR");
  return ::isatty(STDOUT_FILENO) != 0 && (no_colour == nullptr || *no_colour == '\0');
}

std::string format_of_file(const std::string& path) {
  const std::string ending = Path(path).extension().string();
  for (const auto& [known, format] :
       {std::pair{".svg", "svg"}, {".json", "chrome"}, {".txt", "actions"}, {".csv", "csv"}}) {
    if (ending == known) return format;
  }
  fail_usage(
      "--output {}: expected a name that ends in .svg (figure), .json (Chrome trace), .txt (actions, for "
      "\"check\") or .csv (as PyTorch loads it); or say --format",
      path);
}

Subject subject_to_draw(const DrawOptions& options) {
  Subject subject = subject_of(options);
  if (options.whole_step) {
    subject.schedule = whole_step(subject.schedule);
  } else if (options.messages && !subject.schedule.stated.messages) {
    subject.schedule = with_messages(subject.schedule);
  }
  return subject;
}

std::string content(const std::string& format, const DrawOptions& options, Subject& subject) {
  const Schedule& schedule = subject.schedule;
  if (format == "actions") return to_text(schedule);
  if (format == "csv") return to_torch_csv(schedule, &subject.notes);
  const Trace trace = simulate(schedule, subject.costs);
  if (format == "chrome") {
    return chrome_json(with_memory(schedule, subject.costs, trace), subject.name, "lane") + "\n";
  }
  if (format == "svg") {
    const SvgOptions look{.lane_name = "lane", .seconds = subject.measured};
    return draw_svg({with_memory(schedule, subject.costs, trace)}, {heading(subject)}, look);
  }
  TextOptions look;
  look.width = width_of_output(options);
  look.colour = options.output.empty() && colours();
  look.seconds = subject.measured;
  look.lane_name = "lane";
  const std::string text = draw_text(trace, look);
  return fmt::format("{}\n{}{}{}", heading(subject), text, text.ends_with('\n') ? "" : "\n",
                     summary_text(subject, summarize(schedule, trace)));
}

void run_draw(const DrawOptions& options) {
  if (options.json && !options.format.empty() && options.output.empty()) {
    fail_usage("--json and --format both write to standard output: leave one out, or say --output");
  }
  std::string format = options.format;
  if (format.empty()) format = options.output.empty() ? "timeline" : format_of_file(options.output);
  Subject subject = subject_to_draw(options);
  std::string text;
  if (!options.output.empty() || !options.json) text = content(format, options, subject);
  if (!options.output.empty()) write_whole(options.output, text);
  for (const std::string& note : subject.notes) fmt::print(stderr, "note: {}\n", note);
  if (options.json) {
    auto json = summary_json(subject, summarize(subject.schedule, simulate(subject.schedule, subject.costs)));
    if (!options.output.empty()) json["output"] = options.output;
    fmt::print("{}\n", json.dump(2));
  } else if (options.output.empty()) {
    fmt::print("{}", text);
  } else {
    fmt::print("{}\n{}{}: written\n", heading(subject),
               summary_text(subject, summarize(subject.schedule, simulate(subject.schedule, subject.costs))),
               options.output);
  }
}

}  // namespace

void add_schedule_draw(CLI::App& schedule) {
  auto* const command =
      schedule.add_subcommand("draw", "Draw a schedule, to scale: who does what when, and who waits");
  const auto options = std::make_shared<DrawOptions>();
  add_subject(*command, *options);
  add_size_options(*command, *options);
  add_time_options(*command, *options, "one stage");
  add_step_options(*command, *options);
  command->add_option("-o,--output", options->output, "Write a file: .svg, .json (Chrome trace), .txt, .csv")
      ->type_name("FILE");
  command->add_option("--format", options->format, "To standard output, or of the file whatever its name")
      ->check(CLI::IsMember({"timeline", "svg", "chrome", "actions", "csv"}));
  command->add_flag("--messages", options->messages, "State the messages between lanes");
  command->add_flag("--whole-step", options->whole_step,
                    "State all that an executor does: loads, messages, reductions, updates");
  command->add_option("--width", options->width, "Columns (default: COLUMNS, the terminal's, or 100)")
      ->check(CLI::Range(kLeastWidth, kMostWidth));
  add_json_option(*command, *options);
  command->footer("Example: troika schedule draw 1f1b --stages 4 --micro-batches 8 --forward 1 --backward 2");
  command->callback([options] { run_draw(*options); });
}

}  // namespace troika
