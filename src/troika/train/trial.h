// The trial behind `ranks = "auto"`: a few real training steps on every sensible number of ranks and threads,
// whose results are thrown away, and the fastest of them. Threading: one call at a time in a process; it
// makes its own rank threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "troika/base/progress.h"
#include "troika/train/recipe.h"

namespace troika {

struct Workload;

/// Ranks that compute side by side, and intra-op threads of each.
struct Layout {
  int64_t ranks = 1;
  int64_t threads = 1;
  bool operator==(const Layout&) const = default;
};

/// "2 ranks x 1 thread".
std::string to_string(const Layout& layout);

struct LayoutRate {
  Layout layout;
  double samples_per_s = 0;  // median over its blocks
  int64_t blocks = 0;
};

struct TrialResult {
  Layout chosen;
  std::vector<LayoutRate> rates;  // in the order tried; empty: nothing was measured
  std::string reason;             // why that one, or why nothing was measured; for people
  bool interrupted = false;       // by Ctrl-C: nothing is chosen
};

/// Whether so many ranks may be tried: each has samples, and no BatchNorm group is cut.
using RanksFit = std::function<bool(int64_t ranks)>;

/// What to try on `cores`, the most promising first: serial, a rank on each core, all cores in one rank, then
/// what lies between (all divisors of the cores; powers of two from 16 cores on), each with as many threads
/// as there are cores for it, and with one. `threads` is the recipe's threads_per_rank, 0 if it is free.
/// Never more threads than cores, other than one rank with the asked threads.
std::vector<Layout> candidate_layouts(int cores, int64_t threads, const RanksFit& fits);

/// Some steps in a row of one layout, after a warm-up that isn't in the numbers.
struct TrialBlock {
  int64_t steps = 0;
  double samples = 0;
  double seconds = 0;
  bool interrupted = false;
};

/// Runs steps until they took `seconds` or `most_steps` are done, at least two.
using MeasureBlock = std::function<TrialBlock(const Layout& layout, double seconds, int64_t most_steps)>;

struct TrialLimits {
  double seconds = 3;         // for three rounds, warm-ups apart, where steps are fast
  double share = 0.1;         // of the work that is to be done, at most
  double shortest_run = 0.5;  // seconds of work below which nothing is tried
  int64_t most_block_steps = 1000;
};

/// Measures in rounds, A B C A B C, and leaves out after each one what is behind; those that are close to the
/// best get more of them. `total_steps` is what the run is going to do. The fastest median wins; within 2 %
/// the simpler one, and never one that is slower than serial.
TrialResult run_trial(const std::vector<Layout>& candidates, int64_t total_steps, const TrialLimits& limits,
                      const MeasureBlock& measure, Progress& progress);

/// The whole trial for a recipe as the user wrote it. `work` is prepared with any number of ranks. Throws
/// what training throws.
TrialResult try_layouts(const Workload& work, const ParallelRecipe& asked, int cores, Progress& progress,
                        const TrialLimits& limits = {});

/// A real block: replicas of the run's layers on the first batches of its first epoch, with a learning rate
/// of 0 so that however many steps are tried, the weights stay where the run begins.
TrialBlock measure_block(const Workload& work, const Layout& layout, double seconds, int64_t most_steps);

/// The table for people.
std::string trial_table(const TrialResult& result);

}  // namespace troika
