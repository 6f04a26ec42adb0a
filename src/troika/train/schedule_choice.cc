#include "troika/train/schedule_choice.h"

#include "troika/base/error.h"
#include "troika/schedule/catalogue.h"
#include "troika/schedule/passes.h"
#include "troika/schedule/schedule_file.h"
#include "troika/schedule/validate.h"

namespace troika {
namespace {

constexpr const char* kDefaultSchedule = "1f1b";
constexpr const char* kManyBatches = "pipedream-2bw";  // an update after several micro-batches

ScheduleRequest request_of(const ParallelRecipe& parallel) {
  ScheduleRequest request;
  request.lanes = parallel.mesh->pipeline;
  request.micro_batches = static_cast<int>(parallel.micro_batches);
  request.chunks = static_cast<int>(parallel.chunks);
  return request;
}

void refuse_unused(const ParallelRecipe& parallel, const ScheduleChoice& choice) {
  const auto refuse = [&](bool set, const char* key) {
    if (set) fail_usage("parallel.{} is for asynchronous schedules, and {} is none", key, choice.name);
  };
  refuse(!choice.window && parallel.flush_every != 0, "flush_every");
  refuse(!choice.window && parallel.vertical_sync, "vertical_sync");
  if (parallel.vertical_sync && choice.name == kManyBatches) {
    fail_usage("parallel.vertical_sync means nothing with {}: all its stages lag by one update",
               kManyBatches);
  }
  if (choice.longest_window > 0 && parallel.flush_every > choice.longest_window) {
    fail_usage("parallel.flush_every is {}, and {} has {} updates", parallel.flush_every, choice.name,
               choice.longest_window);
  }
}

// A window that is long enough to have as many updates on their way as any.
int long_window(const ScheduleRequest& request) { return 2 * request.lanes + 1; }

ScheduleChoice pipedream(const std::string& name, ScheduleRequest request) {
  ScheduleChoice choice{name, {}, {}};
  if (name == kManyBatches) {
    choice.window = [=](int steps) mutable {
      request.updates = steps;
      return make_schedule(name, request);
    };
  } else {
    if (request.micro_batches != 1) {
      fail_usage(
          "schedule {}: micro_batches is {}, and each global batch is one micro-batch there: leave it out, "
          "or "
          "take {}, which updates after several",
          name, request.micro_batches, kManyBatches);
    }
    choice.window = [=](int steps) mutable {
      request.micro_batches = steps;
      return make_schedule(name, request);
    };
  }
  choice.schedule = choice.window(long_window(request));
  return choice;
}

ScheduleChoice from_file(const ParallelRecipe& parallel) {
  const std::string& path = *parallel.schedule;
  const int lanes = parallel.mesh->pipeline;
  if (parallel.chunks != 0)
    fail_usage("parallel.chunks is {}, but {} says its stages itself", parallel.chunks, path);
  ScheduleChoice choice{path, without_messages(parse_source(read_schedule(path)).schedule), {}};
  const Schedule& schedule = choice.schedule;
  require_valid(schedule, path);
  if (schedule.kind != Kind::train) fail_usage("{} is a schedule of forwards only; a run trains", path);
  if (schedule.num_lanes() != lanes) {
    fail_usage("{} has {} lanes, and the mesh {} has {}: they must be the same", path, schedule.num_lanes(),
               to_string(*parallel.mesh), lanes);
  }
  const int per_step = schedule.num_micro_batches / schedule.num_updates;
  if (per_step != parallel.micro_batches || per_step * schedule.num_updates != schedule.num_micro_batches) {
    fail_usage("{} has {} micro-batches and {} update{}, and parallel.micro_batches is {}: {}", path,
               schedule.num_micro_batches, schedule.num_updates, schedule.num_updates == 1 ? "" : "s",
               parallel.micro_batches,
               schedule.num_micro_batches % schedule.num_updates == 0
                   ? fmt::format("set it to {}, --micro-batches {}", per_step, per_step)
                   : "each update must have as many");
  }
  if (schedule.num_updates == 1) return choice;
  if (per_step != 1) {
    fail_usage("{} has {} updates of {} micro-batches; of several only those of one each are in this version",
               path, schedule.num_updates, per_step);
  }
  choice.longest_window = schedule.num_updates;
  choice.window = [whole = schedule](int steps) { return with_micro_batches(whole, steps); };
  return choice;
}

}  // namespace

ScheduleChoice choose_schedule(const ParallelRecipe& parallel) {
  const std::string name = parallel.schedule.value_or(kDefaultSchedule);
  ScheduleChoice choice;
  if (is_schedule_file(name)) {
    choice = from_file(parallel);
  } else if (catalogue_entry(name).asynchronous) {
    choice = pipedream(name, request_of(parallel));
  } else {
    choice = {name, make_schedule(name, request_of(parallel)), {}};
  }
  refuse_unused(parallel, choice);
  return choice;
}

}  // namespace troika
