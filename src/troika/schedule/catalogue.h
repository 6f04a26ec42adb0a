// The catalogue: every schedule Troika can make, by name. Pure; thread-safe.
//
// To add one: a file in catalogue/ whose NAME_entry() returns its CatalogueEntry (gpipe.cc is the shortest,
// orders.h has what several share), its line in the list of catalogue.cc and in CMakeLists.txt. `make` writes
// the passes of each lane in order, for any number of lanes and micro-batches, and nothing else: passes.h
// adds messages, loads and the rest, and the tests over the whole catalogue find it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "troika/schedule/schedule.h"

namespace troika {

/// Seconds of the passes of one stage (a chunk of a lane), for the schedules that are made to measure; others
/// don't look at them. Only ratios count.
struct PassTimes {
  double forward_s = 1;
  double input_s = 1;   // of the backward: the gradient of the input
  double weight_s = 1;  // and of the weights
  double message_s = 0;
};

struct ScheduleRequest {
  int lanes = 1;
  int micro_batches = 1;  // of one global batch; of pipedream: the window's length, one update each
  int chunks = 0;         // stages per lane; 0: the schedule's own default
  int updates = 0;        // length of pipedream-2bw's window in global batches; 0: its default
  PassTimes times = {};
  // Peak `held` of a lane, in whole-lane micro-batches (liveness.h), of zb-auto, zb-v, v-half and v-min; the
  // others hold what they hold.
  std::optional<double> memory_limit = {};
};

struct CatalogueEntry {
  std::string_view name;
  std::string_view summary;  // one line: what it is
  std::string_view bubble;   // in p, m, v, F, I, W, as people write it: "(p-1)(F+I+W)"
  std::string_view memory;   // peak held, in whole-lane micro-batches: "p"
  std::string_view use;      // when to use it
  std::string_view paper;    // "Huang et al., 2019, arXiv:1811.06965"
  int default_chunks = 1;
  bool fixed_chunks = true;  // false: --chunks takes any number >= 1
  bool splits_backward = false;
  bool asynchronous =
      false;  // weights are updated within the window: not equal to the serial run by definition
  bool gains_by_overlap = false;  // its cost is reached only where steps overlap (zb-h2, zb-v)
  Schedule (*make)(const ScheduleRequest& request) = nullptr;
};

std::span<const CatalogueEntry> catalogue();
std::vector<std::string> catalogue_names();

/// Throws UsageError with the nearest name.
const CatalogueEntry& catalogue_entry(std::string_view name);

/// Checks the numbers (UsageError naming which work), then makes it. Compute and, where asynchronous, updates
/// only: passes add the rest.
Schedule make_schedule(std::string_view name, const ScheduleRequest& request);

/// Forwards only, in the lanes and order of `name`: what evaluation runs.
Schedule make_forward_schedule(std::string_view name, const ScheduleRequest& request);

/// lane_of_stage of the layouts. loop: stage s in lane s mod lanes; vee: down the lanes and up again.
std::vector<int> loop_layout(int lanes, int chunks);
std::vector<int> vee_layout(int lanes);

}  // namespace troika
