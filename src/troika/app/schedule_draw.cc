// troika schedule draw: a schedule as a picture, or as the text that `check` reads.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <utility>

#include "troika/app/output.h"
#include "troika/app/schedule.h"
#include "troika/app/schedule_costs.h"
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
  std::vector<std::string> names;
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

// NO_COLOR counts if it is set and not empty, as in other programs.
bool colours() {
  const char* const no_colour = std::getenv("NO_COLOR");
  const char* const terminal = std::getenv("TERM");
  const bool wanted = no_colour == nullptr || *no_colour == '\0';
  const bool able = terminal == nullptr || std::string_view(terminal) != "dumb";
  return wanted && able && ::isatty(STDOUT_FILENO) != 0;
}

std::string format_of_file(const std::string& path) {
  // A name like ".svg" is an ending alone.
  const std::string name = Path(path).filename().string();
  std::string ending = name.substr(std::min(name.size(), name.rfind('.')));
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const auto& [known, format] :
       {std::pair{".svg", "svg"}, {".json", "chrome"}, {".txt", "actions"}, {".csv", "csv"}}) {
    if (ending == known) return format;
  }
  fail_usage(
      "--output {}: expected a name that ends in .svg (figure), .json (Chrome trace), .txt (actions, for "
      "\"check\") or .csv (as PyTorch loads it); or say --format",
      path);
}

// A schedule and, once somebody asks, its trace: some forms need none, some outputs need it twice.
class Drawing {
 public:
  explicit Drawing(Subject subject) : subject_(std::move(subject)) {}
  const Subject& subject() const { return subject_; }
  const Trace& trace() {
    if (!trace_) trace_ = simulate(subject_.schedule, subject_.costs);
    return *trace_;
  }
  Trace trace_with_memory() { return with_memory(subject_.schedule, subject_.costs, trace()); }
  Summary summary() { return summarize(subject_.schedule, trace()); }
  std::string numbers() { return summary_text(subject_, summary()); }
  std::string csv() { return to_torch_csv(subject_.schedule, &subject_.notes); }

 private:
  Subject subject_;
  std::optional<Trace> trace_;
};

Drawing drawing_of(const DrawOptions& options, const std::string& name) {
  ScheduleOptions one = options;
  one.subject = name;
  Subject subject = subject_of(one);
  if (options.whole_step) {
    subject.schedule = whole_step(subject.schedule);
  } else if (options.messages && !subject.schedule.stated.messages) {
    subject.schedule = with_messages(subject.schedule);
  }
  return Drawing(std::move(subject));
}

std::string timelines(std::vector<Drawing>& drawings, const DrawOptions& options) {
  TextOptions look;
  look.width = width_of_output(options);
  look.colour = options.output.empty() && colours();
  look.lane_name = "lane";
  std::string text;
  for (Drawing& drawing : drawings) {
    look.seconds = drawing.subject().measured;
    text += fmt::format("{}{}\n{}", text.empty() ? "" : "\n", heading(drawing.subject()),
                        draw_text(drawing.trace(), look));
    if (!text.ends_with('\n')) text += '\n';
    text += drawing.numbers();
  }
  return text;
}

std::string figure(std::vector<Drawing>& drawings) {
  std::vector<Trace> traces;
  std::vector<std::string> titles;
  for (Drawing& drawing : drawings) {
    traces.push_back(drawing.trace_with_memory());
    titles.push_back(heading(drawing.subject()));
  }
  return draw_svg(traces, titles, {.lane_name = "lane", .seconds = drawings.front().subject().measured});
}

std::string content(const std::string& format, const DrawOptions& options, std::vector<Drawing>& drawings) {
  if (format == "timeline") return timelines(drawings, options);
  if (format == "svg") return figure(drawings);
  if (drawings.size() > 1) {
    fail_usage("{} schedules in one picture: only a timeline or an SVG figure has room for more than one",
               drawings.size());
  }
  Drawing& drawing = drawings.front();
  if (format == "actions") return to_text(drawing.subject().schedule);
  if (format == "csv") return drawing.csv();
  return chrome_json(drawing.trace_with_memory(), drawing.subject().name, {.lane_name = "lane"}) + "\n";
}

// What is written, and refuses what doesn't go together.
std::string format_of(const DrawOptions& options) {
  const bool to_file = !options.output.empty();
  if (options.output == "-") {
    fail_usage("--output -: leave --output out, and --format svg goes to standard output");
  }
  if (options.json && !options.format.empty() && !to_file) {
    fail_usage("--json and --format both write to standard output: leave one out, or say --output");
  }
  if (options.json && options.names.size() > 1) fail_usage("--json is about one schedule, not several");
  if (std::ranges::count(options.names, "-") > 1) {
    fail_usage("- stands {} times: standard input can be read once", std::ranges::count(options.names, "-"));
  }
  std::string format = options.format;
  if (format.empty()) format = to_file ? format_of_file(options.output) : "timeline";
  if (options.width > 0 && (format != "timeline" || (options.json && !to_file))) {
    fail_usage("--width is for a timeline alone: leave it out");
  }
  return format;
}

void run_draw(const DrawOptions& options) {
  const bool to_file = !options.output.empty();
  const std::string format = format_of(options);
  std::vector<Drawing> drawings;
  for (const std::string& name : options.names) drawings.push_back(drawing_of(options, name));
  std::string text;
  if (to_file || !options.json) text = content(format, options, drawings);
  if (to_file) write_whole(options.output, text);
  if (options.json) {
    Drawing& drawing = drawings.front();
    auto json = summary_json(drawing.subject(), drawing.summary());
    if (to_file) json["output"] = options.output;
    return print_json(json);
  }
  for (const Drawing& drawing : drawings) print_notes(drawing.subject().notes);
  if (!to_file) return print_out(text);
  std::string summary;
  for (Drawing& drawing : drawings) {
    summary += fmt::format("{}\n{}", heading(drawing.subject()), drawing.numbers());
  }
  print_out(fmt::format("{}{}: written\n", summary, options.output));
}

}  // namespace

void add_schedule_draw(CLI::App& schedule) {
  auto* const command =
      schedule.add_subcommand("draw", "Draw a schedule, to scale: who does what when, and who waits");
  const auto options = std::make_shared<DrawOptions>();
  command
      ->add_option("schedules", options->names,
                   "Names of \"troika schedule list\", files (text form, or .csv as PyTorch writes it), or - "
                   "for standard input; several are drawn under each other")
      ->required()
      ->type_name("NAME|FILE");
  add_size_options(*command, *options);
  add_time_options(*command, *options, "one stage");
  add_step_options(*command, *options);
  command->add_option("-o,--output", options->output, "Write a file: .svg, .json (Chrome trace), .txt, .csv")
      ->type_name("FILE")
      ->check(some_name());
  command->add_option("--format", options->format, "To standard output, or of the file whatever its name")
      ->type_name("FORM")
      ->check(CLI::IsMember({"timeline", "svg", "chrome", "actions", "csv"}));
  command->add_flag("--messages", options->messages, "State the messages between lanes");
  command->add_flag("--whole-step", options->whole_step,
                    "State all that an executor does: loads, messages, reductions, updates");
  command->add_option("--width", options->width, "Columns (default: COLUMNS, the terminal's, or 100)")
      ->type_name("N")
      ->check(whole_number(kLeastWidth, kMostWidth));
  add_json_option(*command, *options);
  command->footer(costs_help() +
                  "Example: troika schedule draw 1f1b --stages 4 --micro-batches 8 --forward 1 --backward 2");
  command->callback([options] { run_draw(*options); });
}

}  // namespace troika
