// What the subcommands of `troika schedule` are asked: the options they share, and the schedule and times
// that these mean. Free functions; values.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "troika/schedule/catalogue.h"
#include "troika/simulate/cost_model.h"

namespace troika {

struct ScheduleOptions {
  std::string subject;  // a name of the catalogue, a file, or - for standard input
  std::optional<int> lanes, micro_batches, chunks, updates;
  std::optional<double> forward, input, weight, backward, comm, memory_limit;
  std::optional<double> load, reduce, update;
  std::string costs;  // a file of measured costs
  std::vector<int> recompute;
  bool forward_only = false;
  bool json = false;
};

void add_subject(CLI::App& command, ScheduleOptions& options);
/// --stages, --micro-batches, --chunks, --updates, --memory-limit.
void add_size_options(CLI::App& command, ScheduleOptions& options);
/// --forward, --input, --weight, --backward, --comm; `of` is what they are the seconds of.
void add_time_options(CLI::App& command, ScheduleOptions& options, const std::string& of);
/// --costs, --load, --reduce, --update, --recompute, --forward-only.
void add_step_options(CLI::App& command, ScheduleOptions& options);
void add_json_option(CLI::App& command, ScheduleOptions& options);

/// The numbers that were given, or the defaults: 4 stages, 8 micro-batches.
ScheduleRequest request_of(const ScheduleOptions& options);

/// Throws UsageError for a --memory-limit that is none.
void check_memory_limit(const std::optional<double>& limit);

/// Throws UsageError for a time that is none, and for a backward that is given twice.
PassTimes pass_times(const ScheduleOptions& options);

/// The schedule that a command is about.
struct Subject {
  std::string name;
  Schedule schedule;
  CostModel costs;
  bool measured = false;           // the costs are a file's: seconds and bytes, not units
  std::vector<std::string> notes;  // what was dropped while the file was read
};

/// Makes or reads it, proves it, and adds what the options ask for (recompute, loads, reductions, updates).
Subject subject_of(const ScheduleOptions& options);

}  // namespace troika
