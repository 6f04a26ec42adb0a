// search_schedules(): which schedule for these lanes, micro-batches, times and memory. Makes and simulates
// the whole catalogue. Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "troika/schedule/catalogue.h"
#include "troika/simulate/simulate.h"

namespace troika {

struct SearchRequest {
  int lanes = 1;
  int micro_batches = 1;
  int chunks = 0;   // of the schedules that take any number of stages per lane; 0: their default
  int updates = 0;  // of pipedream-2bw's window; 0: its default
  PassTimes times;  // of one lane's share of the model: divided by the chunks of each schedule
  std::optional<double> memory_limit;  // peak held of a lane, in whole-lane micro-batches
  bool steps_overlap = false;          // no barrier between steps: compare costs, else makespans
};

struct Candidate {
  const CatalogueEntry* entry = nullptr;
  int chunks = 1;
  Summary summary;  // of `micro_batches` micro-batches: times and messages of a longer window are divided
  double peak_held = 0;  // of the fullest lane
  bool fits = true;      // in the memory limit
  std::string refused;   // why it can't be made for these numbers; empty if it was
};

struct SearchResult {
  std::vector<Candidate> candidates;  // best first, those that don't fit after all that do; refused ones last
  int best = -1;                      // the first that is synchronous and fits; -1 if none
  std::string reason;                 // a sentence: why this one, against the runner-up and the common choice
};

/// Lanes times micro-batches: what keeps the whole catalogue a matter of seconds.
inline constexpr int64_t kMostSearched = 400'000;

/// Ties in time go to less memory, then to the one that the catalogue lists first. Throws UsageError if a
/// number is none, or they are more than kMostSearched.
SearchResult search_schedules(const SearchRequest& request);

/// Every stage takes `times`, every message `message_s`.
CostModel uniform_costs(int stages, const PassTimes& times);

}  // namespace troika
