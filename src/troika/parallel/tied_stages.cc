#include "troika/parallel/tied_stages.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "troika/base/error.h"
#include "troika/schedule/passes.h"

namespace troika {
namespace {

/// The tensor of that name; undefined if there is none.
template <typename Named>
at::Tensor find_tensor(const std::vector<Named>& list, const std::string& name) {
  const auto found = std::ranges::find(list, name, &Named::name);
  return found == list.end() ? at::Tensor() : found->tensor;
}

// No schedule has such actions: they say only that both ends mean the same.
Action gradients_between(int user, int owner) { return {Op::reduce_gradients, user, 0, owner}; }
Action numbers_between(int owner, int user) { return {Op::optimizer_step, owner, 0, user}; }

}  // namespace

bool has_ties(const Wiring& wiring, const StageWiring& stage) {
  const auto is_here = [&](int64_t layer) { return layer >= stage.layers.begin && layer < stage.layers.end; };
  return std::ranges::any_of(wiring.ties, [&](const Tied& t) { return is_here(t.user) || is_here(t.owner); });
}

TiedStages::TiedStages(const std::vector<Layer>& layers, const Wiring& wiring,
                       const std::map<int, const Model*>& models, std::vector<int> lane_of_stage,
                       TensorLink* link)
    : lane_of_stage_(std::move(lane_of_stage)), link_(link) {
  for (const auto& [stage, model] : models) stages_.insert(stage);
  const auto name_of = [&layers](int64_t layer, const std::string& parameter) {
    return full_name(layers[static_cast<size_t>(layer)].name, parameter);
  };
  std::map<std::pair<int, int>, Pair> pairs;  // by (- owner, user)
  for (const Tied& tied : wiring.ties) {
    const int user = stage_of_layer(wiring, tied.user), owner = stage_of_layer(wiring, tied.owner);
    if (user == owner) continue;
    Use use{name_of(tied.user, tied.user_parameter), name_of(tied.owner, tied.owner_parameter), {}, {}};
    if (is_mine(user)) use.use = find_tensor(models.at(user)->tied(), use.name);
    if (is_mine(owner)) {
      use.owner = find_tensor(models.at(owner)->parameters(), use.owner_name);
      if (!use.owner.defined()) {
        fail_usage("parameter \"{}\" is tied to \"{}\", which is no trainable parameter of its layer",
                   use.name, use.owner_name);
      }
    }
    Pair& pair = pairs[{-owner, user}];
    pair.owner = owner;
    pair.user = user;
    pair.uses.push_back(std::move(use));
    tied_stages_.insert({user, owner});
  }
  for (auto& [key, pair] : pairs) pairs_.push_back(std::move(pair));
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

void TiedStages::exchange_gradients(int stage, int64_t step) {
  // The first of them reduces when all passes of this lane are done; others may before.
  if (!tied_stages_.contains(stage)) return;
  if (std::exchange(sent_step_, step) != step) {
    for (Pair& pair : pairs_) {
      if (!is_mine(pair.user)) continue;
      Parcel parcel;
      for (Use& tie : pair.uses) {
        parcel.tensors.push_back(tie.use.grad());
        tie.use.mutable_grad().reset();
      }
      deliver(gradients_between(pair.user, pair.owner), step, std::move(parcel), pair.owner);
    }
  }
  const at::NoGradGuard no_grad;
  for (Pair& pair : pairs_) {
    if (pair.owner != stage) continue;
    const Parcel parcel = collect(gradients_between(pair.user, stage), step, pair.user);
    for (size_t i = 0; i < pair.uses.size(); ++i) {
      const at::Tensor& gradient = parcel.tensors.at(i);
      if (!gradient.defined()) continue;
      at::Tensor& sum = pair.uses[i].owner.mutable_grad();
      sum = sum.defined() ? sum.add_(gradient) : gradient;
    }
  }
}

void TiedStages::publish(int64_t step) {
  const at::NoGradGuard no_grad;
  for (const Pair& pair : pairs_) {
    if (!is_mine(pair.owner)) continue;
    Parcel parcel;
    // A copy: the owner may write its own before the user has read them.
    for (const Use& tie : pair.uses) parcel.tensors.push_back(tie.owner.detach().clone());
    deliver(numbers_between(pair.owner, pair.user), step, std::move(parcel), pair.user);
  }
  for (const Pair& pair : pairs_) {
    if (!is_mine(pair.user)) continue;
    const Parcel parcel = collect(numbers_between(pair.owner, pair.user), step, pair.owner);
    for (size_t i = 0; i < pair.uses.size(); ++i) {
      const Use& tie = pair.uses[i];
      const at::Tensor& numbers = parcel.tensors.at(i);
      if (tie.use.sizes() != numbers.sizes()) {
        fail_usage("parameter \"{}\" ([{}]) is tied to \"{}\" ([{}]): both must have the same shape",
                   tie.name, fmt::join(tie.use.sizes(), ", "), tie.owner_name,
                   fmt::join(numbers.sizes(), ", "));
      }
      tie.use.detach().copy_(numbers);
    }
  }
}

}  // namespace troika
