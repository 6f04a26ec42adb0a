#include <algorithm>

#include "troika/base/cpu.h"
#include "troika/base/interrupt.h"
#include "troika/base/text.h"
#include "troika/comm/rank_group.h"
#include "troika/parallel/torch_errors.h"
#include "troika/train/step_pieces.h"
#include "troika/train/trial.h"

namespace troika {
namespace {

// Of a step: the longer it takes, the less the first ones (fresh memory, caches, a clock that speeds up)
// weigh.
constexpr double kQuick = 0.05, kSlow = 1;
constexpr int64_t kQuickWarmUp = 4, kWarmUp = 2;

bool is_warm(int64_t steps, double seconds) {
  const double one = seconds / static_cast<double>(steps);
  return steps >= (one < kQuick ? kQuickWarmUp : one < kSlow ? kWarmUp : 1);
}
constexpr int64_t kLeastTimed = 2;

/// What rank 0 tells the others after each step: a rank that decided by itself would leave the others
/// waiting.
enum class Next : int64_t { warm_up, timed, done, interrupted };

Next told_by_first(Communicator& communicator, Next mine) {
  auto next = static_cast<int64_t>(mine);
  if (communicator.size() > 1) communicator.broadcast({&next, 1, ElementType::int64}, 0);
  return static_cast<Next>(next);
}

ReplicaOptions data_parallel(const Workload& work) {
  ReplicaOptions options = replica_options(work);
  options.mesh = {0, 1, 1};
  return options;
}

class BlockLoop {
 public:
  BlockLoop(const Workload& work, BatchSource& source, Communicator& communicator)
      : work_(work),
        comm_(communicator),
        pieces_(work, source, {communicator.size(), 1, 1}, communicator.rank()),
        replica_(communicator, work.layers, data_parallel(work)) {
    replica_.set_learning_rate(0);
  }

  TrialBlock run(double seconds, int64_t most_steps) {
    TrialBlock block;
    int64_t step = 0, warm = 0;
    Next next = Next::warm_up;
    auto from = Clock::now();
    while (next == Next::warm_up || next == Next::timed) {
      // A run may be shorter than the block: then its steps are tried again, as those of later epochs.
      comm_.say("trying a layout", step + 1);
      replica_.step(pieces_.of(step), work_.loss);
      const int64_t samples = place_of_step(work_, step).positions.size();
      ++step;
      const double now = seconds_since(from);
      Next mine = next;
      if (next == Next::warm_up) {
        ++warm;
        if (is_warm(warm, now)) mine = Next::timed;
      } else {
        ++block.steps;
        block.samples += static_cast<double>(samples);
        block.seconds = now;
        if (block.steps >= kLeastTimed && (now >= seconds || block.steps >= most_steps)) mine = Next::done;
      }
      if (interrupted()) mine = Next::interrupted;
      mine = told_by_first(comm_, mine);
      if (next == Next::warm_up && mine == Next::timed) from = Clock::now();
      next = mine;
    }
    block.interrupted = next == Next::interrupted;
    comm_.barrier();  // shared weights live on rank 0: they must outlast the other ranks
    return block;
  }

 private:
  const Workload& work_;
  Communicator& comm_;
  internal::StepPieces pieces_;
  Replica replica_;
};

}  // namespace

TrialBlock measure_block(const Workload& work, const Layout& layout, double seconds, int64_t most_steps) {
  const std::unique_ptr<BatchSource> source = open_training_source(work, static_cast<int>(layout.ranks));
  GroupOptions group;
  group.deadline_seconds = work.recipe.parallel.deadline;
  TrialBlock block;
  run_thread_ranks(static_cast<int>(layout.ranks), group, [&](Communicator& communicator) {
    const internal::ThreadCount threads(layout.threads);
    with_plain_errors([&] {
      const TrialBlock mine = BlockLoop(work, *source, communicator).run(seconds, most_steps);
      if (communicator.rank() == 0) block = mine;
    });
  });
  return block;
}

TrialResult try_layouts(const Workload& work, const ParallelRecipe& asked, int cores, Progress& progress,
                        const TrialLimits& limits) {
  // Each rank has a sample, or a whole BatchNorm group, of each micro-batch of a whole batch.
  Recipe batches = work.recipe;
  batches.train.batch = std::min(batches.train.batch, work.train_samples);
  const int64_t most = std::min(most_ranks(batches), batches.train.batch / batches.parallel.micro_batches);
  const std::vector<Layout> candidates = candidate_layouts(cores, asked.threads_per_rank.value_or(0),
                                                           [most](int64_t ranks) { return ranks <= most; });
  if (cores == 1) {
    TrialResult result;
    result.chosen = candidates.front();
    result.reason = "one usable core";
    return result;
  }
  return run_trial(
      candidates, work.total_steps(), limits,
      [&work](const Layout& layout, double seconds, int64_t most_steps) {
        return measure_block(work, layout, seconds, most_steps);
      },
      progress);
}

}  // namespace troika
