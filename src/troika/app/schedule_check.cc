// troika schedule check: can this schedule run, and does it give the gradients of a training step?
#include <nlohmann/json.hpp>

#include "troika/app/commands.h"
#include "troika/app/output.h"
#include "troika/app/schedule.h"
#include "troika/app/schedule_options.h"
#include "troika/app/schedule_report.h"
#include "troika/base/error.h"
#include "troika/base/text.h"
#include "troika/schedule/liveness.h"
#include "troika/schedule/passes.h"
#include "troika/schedule/schedule_file.h"
#include "troika/schedule/validate.h"

namespace troika {
namespace {

using Json = nlohmann::ordered_json;

struct CheckOptions {
  std::string file;
  std::optional<int> buffer_depth;
  bool blocking = false;
  std::optional<double> memory_limit;
  bool json = false;
};

struct Checked {
  LoadedSchedule loaded;
  Schedule schedule;  // with messages, where those are added
  Verdict verdict;
  bool added_messages = false;
  int needed_depth = 0;  // of a valid one with messages
};

ValidateOptions limits_of(const CheckOptions& options) {
  ValidateOptions limits;
  if (options.blocking && options.buffer_depth) {
    fail_usage("--blocking is --buffer-depth 0: give one of them");
  }
  check_memory_limit(options.memory_limit);
  limits.memory_limit = options.memory_limit;
  if (options.buffer_depth) limits.buffer_depth = *options.buffer_depth;
  if (options.blocking) limits.buffer_depth = 0;
  return limits;
}

Checked checked(const ScheduleSource& source, const ValidateOptions& limits) {
  Checked checked{parse_source(source), {}, {}, false, 0};
  checked.schedule = checked.loaded.schedule;
  checked.verdict = validate(checked.schedule, limits);
  if (!checked.verdict.valid()) return checked;
  Schedule lowered = checked.schedule;
  if (!lowered.stated.messages) {
    lowered = with_messages(lowered);
    if (limits.buffer_depth != kUnlimited) {
      checked.added_messages = true;
      checked.schedule = lowered;
      checked.verdict = validate(lowered, limits);
      if (!checked.verdict.valid()) return checked;
    }
  }
  checked.needed_depth = needed_buffer_depth(lowered);
  return checked;
}

// What a fault that stands nowhere is about is said by its reason alone.
std::string action_of(const Fault& fault) { return fault.lane < 0 ? "" : to_string(fault.action); }

Json unreadable_json(const std::string& name, const std::string& reason) {
  const Json error{{"lane", -1}, {"step", -1}, {"action", ""}, {"reason", reason}};
  return {{"valid", false}, {"errors", Json::array({error})}, {"warnings", Json::array()}, {"name", name}};
}

Json checked_json(const Checked& checked) {
  const Schedule& schedule = checked.schedule;
  Json json{{"valid", checked.verdict.valid()}, {"errors", Json::array()}};
  for (const Fault& fault : checked.verdict.faults) {
    json["errors"].push_back(
        {{"lane", fault.lane}, {"step", fault.step}, {"action", action_of(fault)}, {"reason", fault.reason}});
  }
  json["warnings"] = checked.loaded.notes;
  json["name"] = checked.loaded.name;
  json["kind"] = schedule.kind == Kind::train ? "train" : "forward";
  json["lanes"] = schedule.num_lanes();
  json["stages"] = schedule.num_stages();
  json["micro_batches"] = schedule.num_micro_batches;
  json["updates"] = schedule.num_updates;
  json["messages_added"] = checked.added_messages;
  if (!checked.verdict.valid()) return json;
  json["peak_held"] = Json::array();
  for (const LanePeaks& peaks : lane_peaks(schedule)) json["peak_held"].push_back(peaks.held);
  json["needed_buffer_depth"] = checked.needed_depth;
  return json;
}

std::string stated_text(const Stated& stated) {
  std::vector<std::string_view> words;
  if (stated.loads) words.push_back("loads");
  if (stated.messages) words.push_back("messages");
  if (stated.reductions) words.push_back("reductions");
  if (stated.updates) words.push_back("updates");
  return words.empty() ? "passes only" : fmt::format("passes, {}", fmt::join(words, ", "));
}

std::string valid_text(const Checked& checked) {
  const Schedule& schedule = checked.schedule;
  std::vector<std::string> held;
  for (const LanePeaks& peaks : lane_peaks(schedule)) held.push_back(fmt::format("{:.6g}", peaks.held));
  constexpr size_t kShown = 32;
  const bool cut = held.size() > kShown;
  if (cut) held.resize(kShown);
  return fmt::format(
      "{}: valid\n{}: {}, {}, {}, {}; it states {}\npeak held, in micro-batches of a lane: {}{}\n"
      "messages in flight from one lane to another that it needs room for: {}{}\n",
      checked.loaded.name, schedule.kind == Kind::train ? "training step" : "forwards only",
      counted(schedule.num_lanes(), "lane"), counted(schedule.num_stages(), "stage"),
      counted(schedule.num_micro_batches, "micro-batch"), counted(schedule.num_updates, "update"),
      stated_text(checked.loaded.schedule.stated), fmt::join(held, " "), cut ? " ..." : "",
      checked.needed_depth,
      checked.loaded.schedule.stated.messages ? "" : " (each receive just before its use)");
}

std::string invalid_text(const Checked& checked) {
  const auto& faults = checked.verdict.faults;
  std::string text = fmt::format("{}: wrong: {}{} found\n{}\n", checked.loaded.name,
                                 static_cast<int>(faults.size()) >= kMostFaults ? "at least " : "",
                                 counted(static_cast<int64_t>(faults.size()), "fault"),
                                 explain(checked.schedule, faults.front()));
  for (size_t i = 1; i < faults.size(); ++i) {
    const Fault& fault = faults[i];
    const std::string place =
        fault.lane < 0   ? ""
        : fault.step < 0 ? fmt::format("lane {}: ", fault.lane)
                         : fmt::format("{} in lane {}, step {}: ", action_of(fault), fault.lane, fault.step);
    text += fmt::format("also {}{}\n", place, fault.reason);
  }
  return text;
}

// A text that is no schedule is an answer here: JSON says it as it says every other fault.
void check_to_json(const ScheduleSource& source, const ValidateOptions& limits) {
  Json json;
  try {
    json = checked_json(checked(source, limits));
  } catch (const Error& error) {
    json = unreadable_json(source.name, error.what());
  }
  print_json(json);
  if (!json["valid"]) throw ExitStatus{1};
}

void run_check(const CheckOptions& options) {
  const ValidateOptions limits = limits_of(options);
  const ScheduleSource source = read_schedule(options.file);
  if (options.json) return check_to_json(source, limits);
  const Checked result = checked(source, limits);
  print_notes(result.loaded.notes);
  if (result.added_messages) {
    print_notes({result.loaded.name +
                 " states no messages; they were added, sends after their producer, receives before their "
                 "consumer"});
  }
  if (result.verdict.valid()) return print_out(valid_text(result));
  std::string text = invalid_text(result);
  text.pop_back();  // the line's end, which comes with every message
  fail("{}", text);
}

}  // namespace

void add_schedule_check(CLI::App& schedule) {
  auto* const command = schedule.add_subcommand(
      "check", "Prove that a schedule can run and gives a step's gradients, or show where not");
  const auto options = std::make_shared<CheckOptions>();
  command
      ->add_option("file", options->file,
                   "A schedule: the text form, or .csv as PyTorch writes it; - for standard input")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("--buffer-depth", options->buffer_depth,
                   "Messages from one lane to another that can be sent and not yet received")
      ->type_name("N")
      ->check(whole_number(0, 1'000'000));
  command->add_flag("--blocking", options->blocking, "A send waits for its receive (depth 0)");
  command->add_option("--memory-limit", options->memory_limit, "Most micro-batches that a lane may hold")
      ->type_name("X")
      ->check(any_number());
  command->add_flag("--json", options->json,
                    "Print one JSON object on standard output, and nothing else there");
  command->footer(
      "Example: troika schedule check mine.txt --blocking\n"
      "Or of what another command prints: troika schedule draw 1f1b --format csv | troika schedule check -");
  command->callback([options] { run_check(*options); });
}

}  // namespace troika
