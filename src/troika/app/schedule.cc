// troika schedule list, draw, simulate, compare, check: schedules without a model.
#include "troika/app/schedule.h"

#include "troika/app/commands.h"

namespace troika {

void add_schedule(CLI::App& app) {
  auto* const schedule = app.add_subcommand(
      "schedule", "Pipeline schedules without a model: list, draw, simulate, compare, check");
  schedule->require_subcommand(1);
  add_schedule_list(*schedule);
  add_schedule_draw(*schedule);
  add_schedule_simulate(*schedule);
  add_schedule_compare(*schedule);
  add_schedule_check(*schedule);
  schedule->footer("Example: troika schedule draw zb-h1 --stages 4 --micro-batches 8");
}

}  // namespace troika
