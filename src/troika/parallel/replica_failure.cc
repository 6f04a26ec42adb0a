// A step whose numbers aren't finite ends the run on every rank, with the same words: which layer or
// parameter, of whichever lane.
#include <algorithm>
#include <limits>

#include "troika/base/error.h"
#include "troika/parallel/named_gather.h"
#include "troika/parallel/replica_parts.h"

namespace troika {

// What the lane of `stage` says; on every rank.
std::string Replica::State::from_lane_of(int64_t stage, const std::string& text) {
  if (!is_pipelined()) return text;
  return gather_texts(lanes(), text)[static_cast<size_t>(schedule.lane_of(static_cast<int>(stage)))];
}

void Replica::State::discard() {
  for (auto& [number, stage] : stages) stage->discard();
}

// Each lane of the first bad rank looks for the place and tells the others, so that all say the same.
void Replica::State::fail_for_loss(int bad_rank, int64_t step, const char* consequence) {
  constexpr int64_t kNowhere = std::numeric_limits<int64_t>::max();
  struct Found {
    int64_t stage = kNowhere, where = 0, index = 0, micro_batch = 0;
    Elements elements() { return {this, sizeof(Found) / sizeof(int64_t), ElementType::int64}; }
  } found;
  if (data().rank() == bad_rank) {
    for (const auto& [number, stage] : stages) {
      const int micro_batch = stage->stage().bad_micro_batch().value_or(0);
      const NonFinite bad = stage->stage().find_bad_number(micro_batch);
      if (bad.where == NonFinite::Where::loss && !stage->stage().is_last()) continue;
      found = {number, static_cast<int64_t>(bad.where), bad.index,
               stage->stage().number_in_step(micro_batch)};
      break;
    }
  }
  if (data().size() > 1) data().broadcast(found.elements(), bad_rank);
  std::string place;
  if (found.stage != kNowhere) {
    const Model& model = stages.at(static_cast<int>(found.stage))->model();
    place = describe({static_cast<NonFinite::Where>(found.where), found.index}, model);
  }
  // The first stage that has found something knows best; the later ones see what came of it.
  std::vector<Found> of_lanes = {found};
  if (is_pipelined()) {
    of_lanes.resize(static_cast<size_t>(mesh.pipeline));
    Elements all = of_lanes.front().elements();
    all.count *= mesh.pipeline;
    lanes().all_gather(found.elements(), all);
  }
  const Found first = std::ranges::min(of_lanes, {}, &Found::stage);
  place = from_lane_of(first.stage, place);
  discard();
  fail(
      "step {}: the loss is not finite (rank {}, micro-batch {}); the first number that isn't is in {}. {}. "
      "Try a smaller learning rate, or look for such values in the data",
      step, bad_rank, first.micro_batch, place, consequence);
}

void Replica::State::fail_for_gradient(int64_t parameter) {
  int64_t before = 0;
  size_t owner = 0;
  while (parameter - before >= parameters_of_stage[owner]) before += parameters_of_stage[owner++];
  std::string name;
  if (const auto mine = stages.find(static_cast<int>(owner)); mine != stages.end()) {
    name = mine->second->parameters()[static_cast<size_t>(parameter - before)].name;
  }
  name = from_lane_of(static_cast<int64_t>(owner), name);
  discard();
  fail(
      "step {}: the loss is finite but the gradient of parameter \"{}\" is not. No weight was changed. "
      "Try a smaller learning rate, or look for very large values in the data",
      steps + 1, name);
}

// Seen while the weights were written.
void Replica::State::fail_for_updated_gradient(const std::vector<NamedTensor>& parameters, int64_t step) {
  const std::string name = first_non_finite_parameter(parameters);
  fail(
      "step {}: the loss is finite but the gradient of {} is not; the weights have been updated with it. "
      "Go on from a checkpoint before this step, with a smaller learning rate",
      step, name.empty() ? "some parameter" : fmt::format("parameter \"{}\"", name));
}

}  // namespace troika
