#include "troika/parallel/tied_stages.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "troika/base/error.h"
#include "troika/schedule/passes.h"

namespace troika {
namespace {

int stage_of_layer(const Wiring& wiring, int64_t layer) {
  for (const StageWiring& stage : wiring.stages) {
    if (layer < stage.layers.end) return stage.stage;
  }
  TROIKA_ASSERT(false, fmt::format("layer {} is in no stage", layer));
}

// No schedule has such actions: they say only that both ends mean the same.
Action gradients_between(int user, int owner) { return {Op::reduce_gradients, user, 0, owner}; }
Action numbers_between(int owner, int user) { return {Op::optimizer_step, owner, 0, user}; }

}  // namespace

bool has_ties(const Wiring& wiring, const StageWiring& stage) {
  const auto is_here = [&](int64_t layer) { return layer >= stage.layers.begin && layer < stage.layers.end; };
  return std::ranges::any_of(wiring.ties, [&](const Tied& t) { return is_here(t.user) || is_here(t.owner); });
}

TiedStages::TiedStages(const std::vector<Layer>& layers, const Wiring& wiring, const Schedule& schedule,
                       int lane, TensorLink* link, std::map<int, Model*> models)
    : lane_of_stage_(schedule.lane_of_stage), link_(link), models_(std::move(models)) {
  for (const Tied& tied : wiring.ties) {
    const StageTie tie{stage_of_layer(wiring, tied.user), stage_of_layer(wiring, tied.owner),
                       full_name(layers[static_cast<size_t>(tied.user)].name, tied.user_parameter),
                       full_name(layers[static_cast<size_t>(tied.owner)].name, tied.owner_parameter)};
    if (tie.user == tie.owner) continue;
    ties_.push_back(tie);
    tied_stages_.insert({tie.user, tie.owner});
  }
  TROIKA_ASSERT(
      std::ranges::all_of(models_, [&](const auto& m) { return schedule.lane_of(m.first) == lane; }),
      "a stage of another lane");
}

Schedule TiedStages::with_ties_last(const Schedule& schedule) const {
  Schedule out = with_updates_last(schedule);
  for (Lane& lane : out.lanes) {
    const auto waits = [&](const Action& a) {
      return a.op == Op::reduce_gradients && tied_stages_.contains(a.stage);
    };
    Lane last;
    std::ranges::copy_if(lane, std::back_inserter(last), waits);
    std::ranges::sort(last, std::greater<>(), &Action::stage);
    std::erase_if(lane, waits);
    lane.insert(std::ranges::find(lane, Op::optimizer_step, &Action::op), last.begin(), last.end());
  }
  return out;
}

std::vector<TiedStages::StageTie> TiedStages::between(int user, int owner) const {
  std::vector<StageTie> found;
  std::ranges::copy_if(ties_, std::back_inserter(found),
                       [=](const StageTie& t) { return t.user == user && t.owner == owner; });
  return found;
}

at::Tensor TiedStages::use_of(const StageTie& tie) const {
  const auto& uses = models_.at(tie.user)->tied();
  const auto use = std::ranges::find(uses, tie.user_name, &TiedUse::name);
  TROIKA_ASSERT(use != uses.end(), tie.user_name);
  return use->tensor;
}

at::Tensor TiedStages::owner_of(const StageTie& tie) const {
  const auto& parameters = models_.at(tie.owner)->parameters();
  const auto owner = std::ranges::find(parameters, tie.owner_name, &NamedTensor::name);
  if (owner == parameters.end()) {
    fail_usage("parameter \"{}\" is tied to \"{}\", which is no trainable parameter of its layer",
               tie.user_name, tie.owner_name);
  }
  return owner->tensor;
}

void TiedStages::deliver(const Action& message, int64_t step, Parcel parcel, int to_stage) {
  if (is_mine(to_stage)) {
    here_[message] = std::move(parcel);
  } else {
    link_->send(message, step, std::move(parcel), lane_of_stage_[static_cast<size_t>(to_stage)]);
  }
}

Parcel TiedStages::collect(const Action& message, int64_t step, int from_stage) {
  if (!is_mine(from_stage))
    return link_->receive(message, step, lane_of_stage_[static_cast<size_t>(from_stage)]);
  const auto at = here_.find(message);
  TROIKA_ASSERT(at != here_.end(), fmt::format("nothing came from stage {}", from_stage));
  Parcel parcel = std::move(at->second);
  here_.erase(at);
  return parcel;
}

// In the order in which owners receive: later stages first, of each its users in order.
void TiedStages::send_gradients(int64_t step) {
  const auto stages = static_cast<int>(lane_of_stage_.size());
  for (int owner = stages - 1; owner >= 0; --owner) {
    for (const auto& [user, model] : models_) {
      const std::vector<StageTie> ties = between(user, owner);
      if (ties.empty()) continue;
      Parcel parcel;
      for (const StageTie& tie : ties) {
        at::Tensor use = use_of(tie);
        parcel.tensors.push_back(use.grad());
        use.mutable_grad().reset();
      }
      deliver(gradients_between(user, owner), step, std::move(parcel), owner);
    }
  }
}

void TiedStages::exchange_gradients(int stage, int64_t step) {
  // The first of them reduces when all passes of this lane are done; others may before.
  if (!tied_stages_.contains(stage)) return;
  if (sent_step_ != step) send_gradients(step);
  sent_step_ = step;
  const auto stages = static_cast<int>(lane_of_stage_.size());
  const at::NoGradGuard no_grad;
  for (int user = 0; user < stages; ++user) {
    const std::vector<StageTie> ties = between(user, stage);
    if (ties.empty()) continue;
    const Parcel parcel = collect(gradients_between(user, stage), step, user);
    for (size_t i = 0; i < ties.size(); ++i) {
      const at::Tensor& gradient = parcel.tensors.at(i);
      if (!gradient.defined()) continue;
      at::Tensor& sum = owner_of(ties[i]).mutable_grad();
      sum = sum.defined() ? sum.add_(gradient) : gradient;
    }
  }
}

void TiedStages::publish(int64_t step) {
  const at::NoGradGuard no_grad;
  const auto stages = static_cast<int>(lane_of_stage_.size());
  for (const bool giving : {true, false}) {
    for (int owner = 0; owner < stages; ++owner) {
      for (int user = 0; user < stages; ++user) {
        const std::vector<StageTie> ties = between(user, owner);
        if (ties.empty() || !is_mine(giving ? owner : user)) continue;
        if (giving) {
          Parcel parcel;
          // A copy: the owner may write its own before the user has read them.
          for (const StageTie& tie : ties) parcel.tensors.push_back(owner_of(tie).detach().clone());
          deliver(numbers_between(owner, user), step, std::move(parcel), user);
          continue;
        }
        const Parcel parcel = collect(numbers_between(owner, user), step, owner);
        for (size_t i = 0; i < ties.size(); ++i) {
          at::Tensor use = use_of(ties[i]);
          if (use.sizes() != parcel.tensors.at(i).sizes()) {
            fail_usage("parameter \"{}\" ([{}]) is tied to \"{}\" ([{}]): both must have the same shape",
                       ties[i].user_name, fmt::join(use.sizes(), ", "), ties[i].owner_name,
                       fmt::join(parcel.tensors[i].sizes(), ", "));
          }
          use.detach().copy_(parcel.tensors[i]);
        }
      }
    }
  }
}

}  // namespace troika
