#include "troika/app/schedule_options.h"

#include <algorithm>
#include <cmath>

#include "troika/app/output.h"
#include "troika/app/schedule_costs.h"
#include "troika/base/error.h"
#include "troika/base/text.h"
#include "troika/schedule/passes.h"
#include "troika/schedule/schedule_file.h"
#include "troika/schedule/validate.h"

namespace troika {
namespace {

constexpr int kMostOfOne = 1'000'000;  // stages, micro-batches; make_schedule() limits their product
constexpr double kLongest = 1e15;      // seconds
constexpr double kMostHeld = 1e15;     // micro-batches

double time_or(const std::optional<double>& given, const char* option, double otherwise) {
  if (!given) return otherwise;
  if (!(*given >= 0 && *given <= kLongest)) {
    fail_usage("{}: expected a time of 0 or more, at most {:g}, got {}", option, kLongest, *given);
  }
  return *given + 0.0;  // -0 is 0
}

// Seconds of the passes, for the schedules that are made to measure.
PassTimes mean_times(const CostModel& costs) {
  PassTimes mean{0, 0, 0, costs.link.latency_s};
  const auto count = static_cast<double>(costs.stages.size());
  for (const StageCost& stage : costs.stages) {
    mean.forward_s += stage.forward_s / count;
    mean.input_s += stage.input_s / count;
    mean.weight_s += stage.weight_s / count;
    mean.message_s += costs.link.seconds_per_byte * stage.output_bytes / count;
  }
  return mean;
}

// Activations are counted in whole-lane micro-batches, so that the memory curve shows `held`.
CostModel unit_costs(const Schedule& schedule, const ScheduleOptions& options, const PassTimes& times) {
  CostModel costs;
  costs.link.latency_s = times.message_s;
  const std::vector<int> stages_of_lane = stages_per_lane(schedule);
  for (const int lane : schedule.lane_of_stage) {
    StageCost cost;
    cost.forward_s = times.forward_s;
    cost.input_s = times.input_s;
    cost.weight_s = times.weight_s;
    cost.load_s = options.load.value_or(0);
    cost.reduce_s = options.reduce.value_or(0);
    cost.update_s = options.update.value_or(0);
    cost.activation_bytes = 1.0 / stages_of_lane[static_cast<size_t>(lane)];
    cost.weight_pending_bytes = cost.activation_bytes;
    costs.stages.push_back(cost);
  }
  return costs;
}

void check_step_options(const ScheduleOptions& options) {
  if (!options.costs.empty()) {
    for (const auto& [given, name] : {std::pair{options.forward, "--forward"},
                                      {options.input, "--input"},
                                      {options.weight, "--weight"},
                                      {options.backward, "--backward"},
                                      {options.comm, "--comm"},
                                      {options.load, "--load"},
                                      {options.reduce, "--reduce"},
                                      {options.update, "--update"}}) {
      if (given) fail_usage("{} and --costs say the same thing: leave one of them out", name);
    }
  }
  time_or(options.load, "--load", 0);
  time_or(options.reduce, "--reduce", 0);
  time_or(options.update, "--update", 0);
}

// What a pass that isn't there would have done.
void refuse_training_options(const ScheduleOptions& options) {
  for (const auto& [given, name] : {std::pair{options.reduce.has_value(), "--reduce"},
                                    {options.update.has_value(), "--update"},
                                    {!options.recompute.empty(), "--recompute"}}) {
    if (given) fail_usage("{} is about training, and these are forwards only: leave it out", name);
  }
}

void refuse_sizes(const ScheduleOptions& options) {
  for (const auto& [given, name] : {std::pair{options.lanes, "--stages"},
                                    {options.micro_batches, "--micro-batches"},
                                    {options.chunks, "--chunks"},
                                    {options.updates, "--updates"}}) {
    if (given) fail_usage("{} is for schedules of the catalogue; {} has its own", name, options.subject);
  }
}

Subject made_or_read(const ScheduleOptions& options, const std::optional<CostTable>& table,
                     const PassTimes& times) {
  Subject subject;
  subject.name = options.subject;
  if (is_in_catalogue(options.subject)) {
    ScheduleRequest request = request_of(options);
    request.times = table ? mean_times(table->costs) : times;
    subject.schedule = make_schedule(options.subject, request);
    if (options.updates && subject.schedule.num_updates != *options.updates) {
      fail_usage("--updates is pipedream-2bw's; {} has its own: leave it out", options.subject);
    }
  } else {
    LoadedSchedule loaded = parse_source(read_schedule(options.subject));
    refuse_sizes(options);
    subject.schedule = std::move(loaded.schedule);
    subject.notes = std::move(loaded.notes);
    subject.name = loaded.name;
  }
  ValidateOptions limits;
  limits.memory_limit = options.memory_limit;
  require_valid(subject.schedule, subject.name, limits);
  return subject;
}

auto seconds_adder(CLI::App& command) {
  return [&command](const char* name, std::optional<double>& value, const std::string& what) {
    command.add_option(name, value, what)->type_name("S")->check(any_number());
  };
}

bool any_stage(const CostModel& costs, double StageCost::*field) {
  return std::ranges::any_of(costs.stages, [&](const StageCost& stage) { return stage.*field > 0; });
}

}  // namespace

void add_subject(CLI::App& command, ScheduleOptions& options) {
  command
      .add_option(
          "schedule", options.subject,
          "A name of \"troika schedule list\", a file (text form, or .csv as PyTorch writes it), or - "
          "for standard input")
      ->required()
      ->type_name("NAME|FILE");
}

void add_size_options(CLI::App& command, ScheduleOptions& options) {
  const CLI::Validator positive = whole_number(1, kMostOfOne);
  command.add_option("--stages", options.lanes, "Lanes: pipeline ranks (default 4)")
      ->type_name("P")
      ->check(positive);
  command.add_option("--micro-batches", options.micro_batches, "Micro-batches of a global batch (default 8)")
      ->type_name("M")
      ->check(positive);
  command.add_option("--chunks", options.chunks, "Stages per lane, where a schedule takes any number")
      ->type_name("V")
      ->check(positive);
  command.add_option("--updates", options.updates, "pipedream-2bw: global batches from fill to drain")
      ->type_name("N")
      ->check(positive);
  command
      .add_option("--memory-limit", options.memory_limit,
                  "Most micro-batches that a lane may hold (a chunk of V counts 1 / V)")
      ->type_name("X")
      ->check(any_number());
}

void add_time_options(CLI::App& command, ScheduleOptions& options, const std::string& of) {
  const auto add = seconds_adder(command);
  add("--forward", options.forward, "Time of a forward of " + of + " (default 1)");
  add("--input", options.input, "Of the backward's part for the input (default 1)");
  add("--weight", options.weight, "Of its part for the weights (default 1)");
  add("--backward", options.backward, "Of both parts; a schedule that splits them takes half for each");
  add("--comm", options.comm, "Of a message between lanes, which keeps neither busy (default 0)");
}

void add_step_options(CLI::App& command, ScheduleOptions& options) {
  command.add_option("--costs", options.costs, "Measured costs instead of the times; see below")
      ->type_name("FILE.json")
      ->check(some_name());
  const auto add = seconds_adder(command);
  add("--load", options.load, "State the loads of each micro-batch, of this time");
  add("--reduce", options.reduce, "State each stage's reduction of gradients, of this time");
  add("--update", options.update, "State each stage's optimizer step, of this time");
  command.add_option("--recompute", options.recompute, "Stages that keep only their input: 0,2")
      ->type_name("STAGES")
      ->delimiter(',')
      ->check(whole_number(0, kMostOfOne));
  command.add_flag("--forward-only", options.forward_only, "Only the forwards, as in evaluation");
}

void add_json_option(CLI::App& command, ScheduleOptions& options) {
  command.add_flag("--json", options.json,
                   "Print one JSON object on standard output, and nothing else there");
}

ScheduleRequest request_of(const ScheduleOptions& options) {
  ScheduleRequest request;
  request.lanes = options.lanes.value_or(4);
  request.micro_batches = options.micro_batches.value_or(8);
  request.chunks = options.chunks.value_or(0);
  request.updates = options.updates.value_or(0);
  request.memory_limit = options.memory_limit;
  check_memory_limit(options.memory_limit);
  return request;
}

void check_memory_limit(const std::optional<double>& limit) {
  if (!limit || (*limit > 0 && *limit <= kMostHeld)) return;
  fail_usage(
      "--memory-limit: expected more than 0 micro-batches, at most {:g}, got {}; without it there is no "
      "limit",
      kMostHeld, *limit);
}

PassTimes pass_times(const ScheduleOptions& options) {
  if (options.backward && (options.input || options.weight)) {
    fail_usage("--backward is the sum of --input and --weight: give one or the other");
  }
  PassTimes times;
  times.forward_s = time_or(options.forward, "--forward", 1);
  times.input_s = time_or(options.input, "--input", 1);
  times.weight_s = time_or(options.weight, "--weight", 1);
  times.message_s = time_or(options.comm, "--comm", 0);
  if (options.backward) {
    // A backward in one part takes the sum of the halves, which is exact.
    times.input_s = times.weight_s = time_or(options.backward, "--backward", 0) / 2;
  }
  return times;
}

Subject subject_of(const ScheduleOptions& options) {
  request_of(options);  // its checks also hold for a file
  const PassTimes times = pass_times(options);
  check_step_options(options);
  std::optional<CostTable> table;
  if (!options.costs.empty()) table = read_costs(options.costs);
  Subject subject = made_or_read(options, table, times);
  Schedule& schedule = subject.schedule;
  subject.measured = table.has_value();
  subject.costs = table ? for_schedule(*table, schedule) : unit_costs(schedule, options, times);
  if (options.forward_only) schedule = forward_only(schedule);
  if (schedule.kind == Kind::forward) refuse_training_options(options);
  for (const int stage : options.recompute) {
    if (stage >= schedule.num_stages()) {
      fail_usage("--recompute: there is no stage {}, expected 0 to {}", stage, schedule.num_stages() - 1);
    }
  }
  if (!options.recompute.empty()) schedule = with_recompute(schedule, options.recompute);
  const auto wanted = [&](const std::optional<double>& given, double StageCost::*field) {
    return given.has_value() || (table && any_stage(subject.costs, field));
  };
  if (!schedule.stated.loads && wanted(options.load, &StageCost::load_s)) schedule = with_loads(schedule);
  if (schedule.kind == Kind::forward) return subject;
  if (!schedule.stated.reductions && wanted(options.reduce, &StageCost::reduce_s)) {
    schedule = with_reductions(schedule);
  }
  if (!schedule.stated.updates && wanted(options.update, &StageCost::update_s)) {
    schedule = with_updates(schedule);
  }
  return subject;
}

}  // namespace troika
