// Windows of an asynchronous schedule: steps that overlap, each stage updating its weights as soon as it has
// a step's gradients. What such a run computes is w(t+1) = w(t) - opt(g(an older w)), stage by stage, with
// versions that the schedule fixes (semantics.md, "Asynchronous schedules").
#include <algorithm>

#include "troika/base/error.h"
#include "troika/parallel/replica_parts.h"
#include "troika/schedule/passes.h"
#include "troika/schedule/validate.h"
#include "troika/schedule/weight_versions.h"

namespace troika {
namespace {

// A step has one gradient at one version of the weights.
void require_one_version_per_step(const Schedule& schedule, int stage, const std::vector<int>& versions,
                                  const std::vector<int>& updates) {
  for (size_t i = 1; i < versions.size(); ++i) {
    if (updates[i] != updates[i - 1] || versions[i] == versions[i - 1]) continue;
    fail_usage(
        "the schedule's micro-batches {} and {} belong to one update, and stage {} ({} in all) would run "
        "them with versions {} and {} of the weights: forwards of one update must not have another update "
        "between them",
        i - 1, i, stage, schedule.num_stages(), versions[i - 1], versions[i]);
  }
}

}  // namespace

int Replica::State::kept_versions(int stage) const {
  return versions_to_keep(schedule, stage,
                          versions_of_forwards(schedule, stage, options.pipeline->vertical_sync));
}

void Replica::State::refuse_asynchronous(const std::vector<Layer>& layers) const {
  for (const Tied& tie : wiring.ties) {
    const int owner = stage_of_layer(wiring, tie.owner), user = stage_of_layer(wiring, tie.user);
    if (owner == user) continue;
    const auto& user_layer = layers[static_cast<size_t>(tie.user)];
    const auto& owner_layer = layers[static_cast<size_t>(tie.owner)];
    fail_usage(
        "\"{}\" of stage {} is tied to \"{}\" of stage {}, and an asynchronous schedule has no moment at "
        "which "
        "both stages have the same version of it: take a synchronous schedule (1f1b, zb-h1), or cut the "
        "model "
        "so that both are in one stage",
        full_name(user_layer.name, tie.user_parameter), user,
        full_name(owner_layer.name, tie.owner_parameter), owner);
  }
  if (options.clip_norm > 0 && !options.clip_by_stage) {
    fail_usage(
        "clip_norm clips by the norm over all stages, which an asynchronous schedule never has at one time: "
        "set clip_by = \"stage\", which clips each stage by its own norm, or take a synchronous schedule");
  }
}

const Schedule& Replica::State::window_of(int64_t length) {
  TROIKA_ASSERT(length > 0, fmt::format("a window of {} steps", length));
  if (window && window->num_updates == length) return *window;
  Schedule passes = options.pipeline->window(static_cast<int>(length));
  require_valid(passes, "the schedule of a window");
  if (passes.num_updates != length || passes.lane_of_stage != schedule.lane_of_stage) {
    fail_usage("a window of {} steps has a schedule of {} updates and {} stages, expected {} and {}", length,
               passes.num_updates, passes.num_stages(), length, schedule.num_stages());
  }
  passes.edges = wiring.edges;
  const std::vector<int> updates = updates_of_micro_batches(passes);
  for (int stage = 0; stage < passes.num_stages(); ++stage) {
    const std::vector<int> versions = versions_of_forwards(passes, stage, options.pipeline->vertical_sync);
    require_one_version_per_step(passes, stage, versions, updates);
    TROIKA_ASSERT(versions_to_keep(passes, stage, versions) <= kept_versions(stage),
                  fmt::format("stage {} keeps too few versions for a window of {}", stage, length));
  }
  window = whole_step(passes);
  return *window;
}

/// What a lane does in one window.
class Replica::State::WindowRun {
 public:
  WindowRun(State& state, const Window& window, const StepProbe& probe)
      : state_(state),
        window_(window),
        probe_(probe),
        schedule_(state.window_of(window.steps)),
        step_of_piece_(updates_of_micro_batches(schedule_)) {}

  void run(const Loss& loss) {
    std::vector<Batch> pieces;
    for (int64_t step = 0; step < window_.steps; ++step) {
      first_piece_.push_back(std::ssize(pieces));
      std::ranges::move(window_.pieces(step), std::back_inserter(pieces));
    }
    if (std::ssize(pieces) != schedule_.num_micro_batches) {
      fail_usage("{} steps of {} pieces in all, but the schedule is for {} micro-batches", window_.steps,
                 pieces.size(), schedule_.num_micro_batches);
    }
    for (auto& [number, stage] : state_.stages) {
      StageSteps steps{state_.steps + 1, step_of_piece_, {}};
      for (const int version :
           versions_of_forwards(schedule_, number, state_.options.pipeline->vertical_sync)) {
        steps.versions.push_back(stage->version() + version);
      }
      stage->begin_steps(steps, pieces, loss);
      versions_[number] = std::move(steps.versions);
    }
    updates_left_.assign(static_cast<size_t>(window_.steps), std::ssize(state_.stages));
    execute(schedule_, state_.lane, state_.steps + 1, lane_work(),
            {probe_.spans, state_.communicator.rank(), probe_.spans_from});
    state_.steps += window_.steps;
  }

 private:
  LaneWork lane_work() {
    LaneWork work = state_.lane_work();
    work.begins = [this](const Action& action) {
      const bool is_of_step = action.op == Op::reduce_gradients || action.op == Op::optimizer_step;
      const int step = is_of_step ? action.micro_batch : step_of(action.micro_batch);
      state_.communicator.say(name_of(action.op), state_.steps + 1 + step);
    };
    work.load = [this](int stage, int piece) {
      const int step = step_of(piece);
      const int64_t micro_batch = piece - first_piece_[static_cast<size_t>(step)];
      state_.stages.at(stage)->stage().load(piece, window_.load(step, micro_batch));
    };
    work.reduce_gradients = [this](int stage, int step) {
      const auto first = static_cast<size_t>(first_piece_[static_cast<size_t>(step)]);
      state_.stages.at(stage)->take_gradients(step, versions_.at(stage)[first]);
    };
    work.optimizer_step = [this](int stage, int step) { update(*state_.stages.at(stage), stage, step); };
    return work;
  }

  int step_of(int piece) const { return step_of_piece_[static_cast<size_t>(piece)]; }

  void update(TrainedStage& stage, int number, int step) {
    const int64_t step_number = state_.steps + 1 + step;
    const bool wants_mean = probe_.mean_gradients != nullptr;
    stage.reduce(wants_mean, step);
    const Totals totals = stage.totals();
    if (totals.first_bad_rank >= 0) {
      state_.fail_for_loss(totals.first_bad_rank, step_number,
                           "Updates of earlier steps stand; a run goes on from its last checkpoint");
    }
    if (window_.learning_rate) stage.set_learning_rate(window_.learning_rate(step));
    double scale = 1;
    StepResult& result = results_[step];
    if (state_.options.clip_norm > 0) {
      const GradientNorm found = norm_of(stage.squares());
      scale = clip_scale(found.norm, state_.options.clip_norm);
      result.grad_norm = found.norm;
    }
    if (!stage.update(scale, wants_mean ? &means_[step][number] : nullptr)) {
      State::fail_for_updated_gradient(stage.parameters(), step_number);
    }
    stage.apply_statistics();
    result.waited_seconds += stage.take_waited();
    if (totals.weight > 0) result.loss = totals.loss_sum / totals.weight;
    result.weight = totals.weight;
    if (--updates_left_[static_cast<size_t>(step)] == 0) finish(step);
  }

  void finish(int step) {
    if (probe_.mean_gradients != nullptr) {
      probe_.mean_gradients->clear();
      for (auto& [number, mean] : means_[step])
        std::ranges::move(mean, std::back_inserter(*probe_.mean_gradients));
      means_.erase(step);
    }
    state_.list_tensors();
    if (window_.on_step) window_.on_step(step, results_[step]);
    results_.erase(step);
  }

  State& state_;
  const Window& window_;
  const StepProbe& probe_;
  const Schedule& schedule_;
  const std::vector<int> step_of_piece_;
  std::vector<int64_t> first_piece_;                             // of each step
  std::map<int, std::vector<int64_t>> versions_;                 // of the weights, by stage and piece
  std::vector<int64_t> updates_left_;                            // of each step, in this lane
  std::map<int, StepResult> results_;                            // of steps under way
  std::map<int, std::map<int, std::vector<at::Tensor>>> means_;  // of steps under way, by stage
};

void Replica::run_window(const Window& window, const Loss& loss, const StepProbe& probe) {
  if (!state_->is_asynchronous())
    fail_usage("run_window is for asynchronous schedules; this one's are steps");
  State::WindowRun(*state_, window, probe).run(loss);
}

}  // namespace troika
