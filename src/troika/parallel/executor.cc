#include "troika/parallel/executor.h"

#include <c10/util/Exception.h>

#include <optional>

#include "troika/base/error.h"
#include "troika/parallel/torch_errors.h"

namespace troika {
namespace {

class Execution {
 public:
  Execution(const Schedule& schedule, int lane, int64_t step, const LaneWork& work)
      : schedule_(schedule), lane_(lane), step_(step), work_(work) {}

  void act(const Action& action) {
    const auto [op, stage, micro_batch, peer] = action;
    switch (op) {
      case Op::load:
        return work_.load(stage, micro_batch);
      case Op::forward:
        pass(action, &Stage::forward);
        for (const StageEdge& edge : here(stage).wiring().out) {
          if (is_mine(edge.stage)) {
            here(edge.stage)
                .take_activation(micro_batch, stage, here(stage).activation_for(micro_batch, edge.stage));
          }
        }
        return;
      case Op::recompute:
        return pass(action, &Stage::recompute);
      case Op::backward:
        pass(action, &Stage::backward);
        return hand_gradients_on(stage, micro_batch);
      case Op::backward_input:
        pass(action, &Stage::backward_input);
        return hand_gradients_on(stage, micro_batch);
      case Op::backward_weight:
        return pass(action, &Stage::backward_weight);
      case Op::reduce_gradients:
        return work_.reduce_gradients(stage, micro_batch);
      case Op::optimizer_step:
        return work_.optimizer_step(stage, micro_batch);
      case Op::send_activation:
        return link().send(action, step_, here(stage).activation_for(micro_batch, peer),
                           schedule_.lane_of(peer));
      case Op::send_gradient:
        return link().send(action, step_, here(stage).gradient_for(micro_batch, peer),
                           schedule_.lane_of(peer));
      case Op::receive_activation:
        return here(stage).take_activation(micro_batch, peer,
                                           receive({Op::send_activation, peer, micro_batch, stage}));
      case Op::receive_gradient:
        return here(stage).take_gradient(micro_batch, peer,
                                         receive({Op::send_gradient, peer, micro_batch, stage}));
    }
  }

 private:
  Stage& here(int stage) const {
    TROIKA_ASSERT(is_mine(stage), fmt::format("lane {} has no stage {}", lane_, stage));
    return *work_.stages[static_cast<size_t>(stage)];
  }
  bool is_mine(int stage) const { return work_.stages[static_cast<size_t>(stage)] != nullptr; }

  TensorLink& link() const {
    TROIKA_ASSERT(work_.link != nullptr, "a message in a schedule of one lane");
    return *work_.link;
  }
  Parcel receive(const Action& sent) const {
    return link().receive(sent, step_, schedule_.lane_of(sent.stage));
  }

  // Within a lane nothing travels.
  void hand_gradients_on(int stage, int micro_batch) const {
    for (const StageEdge& edge : here(stage).wiring().in) {
      if (is_mine(edge.stage)) {
        here(edge.stage).take_gradient(micro_batch, stage, here(stage).gradient_for(micro_batch, edge.stage));
      }
    }
  }

  void pass(const Action& action, void (Stage::*method)(int)) const {
    Stage& stage = here(action.stage);
    if (schedule_.num_stages() == 1) return (stage.*method)(action.micro_batch);
    const auto where = [&action] {
      return fmt::format("stage {}, {}, micro-batch {}", action.stage, name_of(action.op),
                         action.micro_batch);
    };
    try {
      (stage.*method)(action.micro_batch);
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("{}: {}", where(), error.what()));
    } catch (const c10::Error& error) {
      fail("{}: {}", where(), explain_torch(error.what_without_backtrace()));
    } catch (const std::exception& error) {
      fail("{}: {}", where(), error.what());
    }
  }

  const Schedule& schedule_;
  const int lane_;
  const int64_t step_;
  const LaneWork& work_;
};

}  // namespace

void execute(const Schedule& schedule, int lane, int64_t step, const LaneWork& work, const SpanLog& log) {
  Execution execution(schedule, lane, step, work);
  for (const Action& action : schedule.lanes[static_cast<size_t>(lane)]) {
    if (action.op == Op::load && !work.load) continue;
    work.begins(action);
    std::optional<MeterScope> memory;
    if (work.meter_of) memory.emplace(work.meter_of(action.stage));
    if (log.spans == nullptr) {
      execution.act(action);
      continue;
    }
    const double start = seconds_since(log.from);
    execution.act(action);
    log.spans->push_back({log.rank, action, start, seconds_since(log.from)});
  }
}

}  // namespace troika
