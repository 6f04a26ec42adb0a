// The subcommands of `troika schedule`, one file each. Torch-free.
#pragma once

#include <CLI/CLI.hpp>

namespace troika {

void add_schedule_list(CLI::App& schedule);
void add_schedule_draw(CLI::App& schedule);
void add_schedule_simulate(CLI::App& schedule);
void add_schedule_compare(CLI::App& schedule);
void add_schedule_check(CLI::App& schedule);

}  // namespace troika
