#include <algorithm>

#include "troika/base/error.h"
#include "troika/base/text.h"
#include "troika/schedule/structure.h"

namespace troika {
namespace {

constexpr size_t kShownMissing = 3;

void check_counts(const Schedule& s, FaultList& faults) {
  const auto wrong = [&](std::string reason) { faults.add(-1, -1, {}, std::move(reason)); };
  if (s.num_stages() < 1) wrong("there is no action: expected at least one stage");
  if (s.num_micro_batches < 1) {
    wrong(fmt::format("micro_batches={}: expected a whole number from 1", s.num_micro_batches));
  }
  if (s.num_updates < 1 || s.num_updates > std::max(1, s.num_micro_batches)) {
    wrong(fmt::format("updates={}: expected a whole number from 1 to the number of micro-batches, {}",
                      s.num_updates, s.num_micro_batches));
  }
  const auto stages = static_cast<size_t>(std::max(0, s.num_stages()));
  if (s.max_versions.size() != stages) {
    wrong(fmt::format("versions= has {} numbers: expected one per stage, {}", s.max_versions.size(), stages));
  }
  if (!s.recomputed.empty() && s.recomputed.size() != stages) {
    wrong(fmt::format("recomputed has {} values: expected one per stage, {}, or none", s.recomputed.size(),
                      stages));
  }
  for (size_t stage = 0; stage < s.max_versions.size(); ++stage) {
    if (s.max_versions[stage] >= 1) continue;
    wrong(fmt::format("versions= lets stage {} keep {} versions of its weights: expected at least 1", stage,
                      s.max_versions[stage]));
  }
  for (size_t stage = 0; stage < stages; ++stage) {
    const int lane = s.lane_of_stage[stage];
    if (lane >= 0 && lane < s.num_lanes()) continue;
    wrong(lane < 0 ? fmt::format("stage {} stands in no lane: not one of its actions is there", stage)
                   : fmt::format("stage {} stands in lane {}, and there are {} lanes", stage, lane,
                                 s.num_lanes()));
  }
}

void check_edges(const Schedule& s, FaultList& faults) {
  const Edge* before = nullptr;
  for (const Edge& edge : s.edges) {
    const auto wrong = [&](std::string_view why) {
      faults.add(-1, -1, {}, fmt::format("edge {}>{}: {}", edge.from, edge.to, why));
    };
    if (edge.from < 0 || edge.to < 0 || std::max(edge.from, edge.to) >= s.num_stages()) {
      wrong(fmt::format("expected two stages from 0 to {}", s.num_stages() - 1));
    } else if (edge.from >= edge.to) {
      wrong("expected an edge from a stage to a later one");
    } else if (before != nullptr && *before == edge) {
      wrong("it stands twice");
    } else if (before != nullptr && edge < *before) {
      wrong(fmt::format("expected edges in ascending order, and it comes after {}>{}", before->from,
                        before->to));
    }
    before = &edge;
  }
  const auto stages = static_cast<size_t>(std::max(1, s.num_stages()));
  if (s.edges.size() > stages * ActionIndex::kMostEdges) {
    faults.add(
        -1, -1, {},
        fmt::format("there are {} edges between {} stages: expected at most {} per stage",
                    with_commas(static_cast<int64_t>(s.edges.size())), stages, ActionIndex::kMostEdges));
  }
}

struct Place {
  int lane = -1, step = -1;
};

struct Forwards {
  std::vector<std::pair<int, int>> there;  // (stage, micro-batch), ascending, each once
  Action highest{Op::forward, 0, -1};      // of all actions, the one with the highest micro-batch
  Place of_highest;
};

Forwards find_forwards(const Schedule& s) {
  Forwards found;
  for (int lane = 0; lane < s.num_lanes(); ++lane) {
    int step = 0;
    for (const Action& action : s.lanes[static_cast<size_t>(lane)]) {
      const Place place{lane, step++};
      if (is_whole_stage(action.op)) continue;
      if (action.stage < 0 || action.stage >= s.num_stages()) continue;
      if (action.micro_batch < 0 || action.micro_batch >= s.num_micro_batches) continue;
      if (action.op == Op::forward) found.there.emplace_back(action.stage, action.micro_batch);
      if (action.micro_batch <= found.highest.micro_batch) continue;
      found.highest = action;
      found.of_highest = place;
    }
  }
  std::ranges::sort(found.there);
  const auto [end, last] = std::ranges::unique(found.there);
  found.there.erase(end, last);
  return found;
}

// Fewer actions than forwards are needed: says which are missing first, how many, and which number may be
// mistyped.
void check_forwards_fit(const Schedule& s, FaultList& faults) {
  const int64_t wanted = int64_t{s.num_stages()} * s.num_micro_batches;
  if (wanted <= static_cast<int64_t>(s.num_actions())) return;
  const Forwards forwards = find_forwards(s);
  std::vector<Action> missing;
  size_t at = 0;
  for (int64_t i = 0; i < wanted && missing.size() < kShownMissing; ++i) {
    const auto stage = static_cast<int>(i / s.num_micro_batches);
    const auto micro_batch = static_cast<int>(i % s.num_micro_batches);
    if (at < forwards.there.size() && forwards.there[at] == std::pair(stage, micro_batch)) {
      ++at;
    } else {
      missing.push_back({Op::forward, stage, micro_batch});
    }
  }
  std::string names;
  for (const Action& action : missing) names += (names.empty() ? "" : ", ") + to_string(action);
  const auto there = static_cast<int64_t>(forwards.there.size());
  if (wanted - there > static_cast<int64_t>(missing.size())) names += " ...";
  std::string reason = fmt::format("{} of the {} forwards of {} stages x {} micro-batches are missing: {}",
                                   with_commas(wanted - there), with_commas(wanted), s.num_stages(),
                                   s.num_micro_batches, names);
  const int highest = forwards.highest.micro_batch;
  if (highest >= 0 && highest + 1 < s.num_micro_batches) {
    reason += fmt::format("; the highest micro-batch in the lanes is {}: is micro_batches={} too high?",
                          highest, s.num_micro_batches);
  } else if (highest >= 0 && wanted - there > there) {
    reason += fmt::format("; is the micro-batch of {} mistyped? It is the highest one",
                          to_string(forwards.highest));
    const auto [lane, step] = forwards.of_highest;
    return faults.add(lane, step, forwards.highest, std::move(reason));
  }
  const int lane = s.lane_of(missing.front().stage);
  faults.add(lane, -1, missing.front(), std::move(reason));
}

void check_messages_fit(const Schedule& s, FaultList& faults) {
  if (!s.stated.messages) return;
  const int64_t crossing = std::ranges::count_if(s.edges, [&](const Edge& e) { return s.crosses_lanes(e); });
  const int64_t wanted = crossing * s.num_micro_batches;
  if (wanted <= static_cast<int64_t>(s.num_actions())) return;
  int64_t there = 0;
  for (const Lane& lane : s.lanes) {
    there += std::ranges::count(lane, Op::send_activation, &Action::op);
  }
  faults.add(-1, -1, {Op::send_activation},
             fmt::format("{} edges between lanes x {} micro-batches make {} messages, and {} activations "
                         "are sent: send all of them, or none and let them be put in",
                         crossing, s.num_micro_batches, with_commas(wanted), with_commas(there)));
}

}  // namespace

void check_numbers(const Schedule& schedule, FaultList& faults) {
  check_counts(schedule, faults);
  check_edges(schedule, faults);
  if (faults.any()) return;
  check_forwards_fit(schedule, faults);
  if (!faults.any()) check_messages_fit(schedule, faults);
}

}  // namespace troika
