// The catalogue for small numbers, and schedules that it doesn't have: for tests of what holds for all.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "troika/base/error.h"
#include "troika/schedule/catalogue.h"
#include "troika/schedule/schedule_text.h"

namespace troika {

struct NamedSchedule {
  std::string name;
  Schedule schedule;
};

inline std::vector<NamedSchedule> catalogue_schedules() {
  std::vector<NamedSchedule> all;
  for (const CatalogueEntry& entry : catalogue()) {
    for (const int lanes : {1, 2, 3, 4}) {
      for (const int micro_batches : {1, 2, 3, 4, 8}) {
        for (const int chunks : {0, 3}) {
          if (chunks != 0 && entry.fixed_chunks) continue;
          ScheduleRequest request;
          request.lanes = lanes;
          request.micro_batches = micro_batches;
          request.chunks = chunks;
          try {
            all.push_back({fmt::format("{} {} lanes, {} micro-batches, {} chunks", entry.name, lanes,
                                       micro_batches, chunks),
                           make_schedule(entry.name, request)});
          } catch (const UsageError&) {  // not for these numbers
          }
        }
      }
    }
  }
  return all;
}

inline std::vector<NamedSchedule> other_schedules() {
  const std::vector<std::pair<std::string, std::string>> texts = {
      {"skips",
       "# kind=train micro_batches=2 edges=0>1,0>2,0>3,1>2,2>3 versions=1,1,1,1\n"
       "0F0 0F1 0B0 0B1\n1F0 1F1 1B0 1B1\n2F0 2F1 2B0 2B1\n3F0 3B0 3F1 3B1\n"},
      {"skips and two stages per lane",
       "# kind=train micro_batches=2 edges=0>1,0>2,0>3,1>2,1>3,2>3 versions=1,1,1,1\n"
       "0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1\n1F0 1F1 3F0 3F1 3B0 3B1 1B0 1B1\n"},
      {"two branches that meet",
       "# kind=train micro_batches=2 edges=0>2,1>2 versions=1,1,1\n"
       "0F0 0F1 0I0 0I1 0W0 0W1\n1F0 1F1 1B0 1B1\n2F0 2B0 2F1 2I1 2W1\n"},
      {"B and I W mixed", "0F0 0F1 0I0 0B1 0W0\n1F0 1B0 1F1 1I1 1W1\n"},
      {"gradients consumed in another order than sent", "0F0 0F1 0F2 0B2 0B1 0B0\n1F0 1F1 1F2 1B0 1B1 1B2\n"},
      {"activations consumed in another order", "0F0 0F1 0F2 0B0 0B1 0B2\n1F2 1F1 1F0 1B0 1B1 1B2\n"},
      {"both ways at once",
       "# kind=train micro_batches=2 edges=0>1,0>3,1>2,2>3 versions=1,1,1,1\n"
       "0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1\n1F0 1F1 3F0 3F1 3B0 3B1 1B0 1B1\n"},
      {"forwards alone", "# kind=forward micro_batches=3 edges=0>1 versions=1,1\n0F0 0F1 0F2\n1F0 1F1 1F2\n"},
      {"recomputed", "0F0 0F1 0C0 0B0 0C1 0B1\n1F0 1B0 1F1 1B1\n"},
  };
  std::vector<NamedSchedule> all;
  for (const auto& [name, text] : texts) all.push_back({name, parse_schedule(text, name)});
  return all;
}

inline std::vector<NamedSchedule> many_schedules() {
  std::vector<NamedSchedule> all = catalogue_schedules();
  for (NamedSchedule& other : other_schedules()) all.push_back(std::move(other));
  return all;
}

}  // namespace troika
