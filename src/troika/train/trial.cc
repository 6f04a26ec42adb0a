#include "troika/train/trial.h"

#include <fmt/format.h>

#include <algorithm>

#include "troika/base/clock.h"
#include "troika/base/error.h"
#include "troika/base/text.h"

namespace troika {
namespace {

constexpr int64_t kManyCores = 16;  // from here on only powers of two are tried
constexpr int kRounds = 3;          // medians need three
constexpr int kMostRounds = 5;      // for those that are close to each other
constexpr double kTie = 0.98;       // of the best: as good as it
constexpr double kBehind[kMostRounds] = {0.5, 0.8, 0.9, 0.9, 0.9};  // of the best: not worth another block
constexpr double kGoodSteps = 4;    // of a block: two or three slow steps say little
constexpr int64_t kLeastSteps = 3;  // of a candidate: one to warm up, two to measure
constexpr double kSlack = 1.25;     // a block ends with a whole step
constexpr double kSlowShare = 2;    // times the share of the work, where even the fewest steps are slow

bool simpler(const Layout& a, const Layout& b) {
  return a.ranks * a.threads != b.ranks * b.threads ? a.ranks * a.threads < b.ranks * b.threads
                                                    : a.ranks < b.ranks;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

/// One candidate and its blocks so far.
struct Tried {
  Layout layout;
  std::vector<double> rates;  // samples/s of each block
  bool out = false;
};

double best_rate(const std::vector<Tried>& all) {
  double best = 0;
  for (const Tried& tried : all) {
    if (!tried.rates.empty()) best = std::max(best, median(tried.rates));
  }
  return best;
}

Layout fastest(const std::vector<Tried>& all) {
  const double best = best_rate(all);
  const Tried* chosen = &all.front();  // serial
  for (const Tried& tried : all) {
    if (tried.rates.empty() || median(tried.rates) < kTie * best) continue;
    const bool chosen_ties = !chosen->rates.empty() && median(chosen->rates) >= kTie * best;
    if (!chosen_ties || simpler(tried.layout, chosen->layout)) chosen = &tried;
  }
  const bool slower = !all.front().rates.empty() && median(chosen->rates) < median(all.front().rates);
  return slower ? all.front().layout : chosen->layout;
}

TrialResult without_trial(const Layout& layout, std::string reason) {
  TrialResult result;
  result.chosen = layout;
  result.reason = std::move(reason);
  return result;
}

class Trial {
 public:
  Trial(const MeasureBlock& measure, const TrialLimits& limits, Progress& progress)
      : measure_(measure), limits_(limits), progress_(progress) {}

  /// False if it was interrupted.
  bool block(Tried& tried, double seconds, double done, double of) {
    progress_.update(fmt::format("auto: trying {}", to_string(tried.layout)), done, of);
    const TrialBlock block = measure_(tried.layout, seconds, limits_.most_block_steps);
    if (block.interrupted) return false;
    count(tried, block);
    return true;
  }

  void count(Tried& tried, const TrialBlock& block) {
    TROIKA_ASSERT(block.steps > 0, "a block of the trial has no step");
    tried.rates.push_back(block.samples / std::max(block.seconds, 1e-9));
    spent_ += block.seconds;
  }

  double spent() const { return spent_; }  // in measured steps

 private:
  const MeasureBlock& measure_;
  const TrialLimits& limits_;
  Progress& progress_;
  double spent_ = 0;
};

}  // namespace

std::string to_string(const Layout& layout) {
  return fmt::format("{} rank{} x {} thread{}", layout.ranks, layout.ranks == 1 ? "" : "s", layout.threads,
                     layout.threads == 1 ? "" : "s");
}

std::vector<Layout> candidate_layouts(int cores, int64_t threads, const RanksFit& fits) {
  std::vector<Layout> found;
  const auto add = [&](int64_t ranks, int64_t each) {
    const Layout layout{ranks, each};
    const bool crowded = ranks * each > cores && !(ranks == 1 && each == threads);
    if (ranks < 1 || each < 1 || crowded || std::ranges::count(found, layout) > 0) return;
    if (ranks > 1 && !fits(ranks)) return;
    found.push_back(layout);
  };
  std::vector<int64_t> between;
  for (int64_t ranks = cores - 1; ranks > 1; --ranks) {
    const bool power = (ranks & (ranks - 1)) == 0;
    if (power || (cores < kManyCores && cores % ranks == 0)) between.push_back(ranks);
  }
  if (threads > 0) {
    add(1, threads);
    add(cores / threads, threads);
    for (const int64_t ranks : between) add(ranks, threads);
    return found;
  }
  add(1, 1);
  add(cores, 1);
  add(1, cores);
  for (const int64_t ranks : between) add(ranks, cores / ranks);
  for (const int64_t ranks : between) add(ranks, 1);
  return found;
}

TrialResult run_trial(const std::vector<Layout>& candidates, int64_t total_steps, const TrialLimits& limits,
                      const MeasureBlock& measure, Progress& progress) {
  TROIKA_ASSERT(!candidates.empty(), "nothing to try");
  const Layout serial = candidates.front();
  if (candidates.size() == 1) return without_trial(serial, "nothing else fits");
  // How many candidates the run has room for; with fewer than two there is nothing to compare.
  const double room = limits.share * kSlowShare * static_cast<double>(total_steps);
  const auto fitting = static_cast<size_t>(room / static_cast<double>(kLeastSteps));
  if (fitting < 2) {
    return without_trial(serial, fmt::format("a run of {} step{} is too short for a trial", total_steps,
                                             total_steps == 1 ? "" : "s"));
  }
  std::vector<Tried> all;
  for (const Layout& layout : candidates) {
    if (all.size() < fitting) all.push_back({layout, {}, false});
  }
  TrialResult result;
  Trial trial(measure, limits, progress);
  // The first block is as short as can be: it says how long the run would be, and so how long the trial may
  // be.
  const TrialBlock probe = measure(serial, 0, limits.most_block_steps);
  if (probe.interrupted) {
    result.interrupted = true;
    return result;
  }
  const double step = probe.seconds / static_cast<double>(probe.steps);
  const double whole = step * static_cast<double>(total_steps);
  if (whole < limits.shortest_run) {
    return without_trial(serial, fmt::format("a run of {} is too short for a trial", human_seconds(whole)));
  }
  const double blocks = kRounds * static_cast<double>(all.size());
  const double wanted = std::max(
      {limits.seconds, limits.seconds / 6 * static_cast<double>(all.size()), blocks * kGoodSteps * step});
  const double budget = std::min(wanted, limits.share * whole);
  const double block_seconds = budget / blocks;
  const bool slow = probe.seconds >= block_seconds;
  if (slow) trial.count(all.front(), probe);  // as good as another block of serial
  const double most_seconds = std::min(budget * kMostRounds / kRounds, limits.share * whole);
  for (int round = 0; round < kMostRounds; ++round) {
    for (size_t i = 0; i < all.size(); ++i) {
      Tried& tried = all[i];
      if (tried.out || (slow && round == 0 && i == 0)) continue;
      const auto done = static_cast<double>(static_cast<size_t>(round) * all.size() + i);
      if (!trial.block(tried, block_seconds, done, std::max(blocks, done + 1))) {
        result.interrupted = true;
        return result;
      }
    }
    const double best = best_rate(all);
    size_t left = 0;
    for (Tried& tried : all) {
      tried.out = tried.out || median(tried.rates) < kBehind[round] * best;
      if (!tried.out) ++left;
    }
    // One that is alone needs no more rounds; neither do slow steps that have used up their time.
    const double with_another = trial.spent() * (round + 2) / (round + 1);
    if (left < 2 || with_another > kSlack * most_seconds) break;
  }
  for (const Tried& tried : all) {
    result.rates.push_back({tried.layout, median(tried.rates), static_cast<int64_t>(tried.rates.size())});
  }
  result.chosen = fastest(all);
  result.reason = result.chosen == serial ? "nothing is faster than serial" : "the fastest";
  return result;
}

std::string trial_table(const TrialResult& result) {
  std::string out =
      fmt::format("auto: {:>5} x {:<7} {:>12} {:>9}\n", "ranks", "threads", "samples/s", "x serial");
  for (const LayoutRate& rate : result.rates) {
    out += fmt::format("      {:>5} x {:<7} {:>12} {:>9.2f}{}\n", rate.layout.ranks, rate.layout.threads,
                       with_commas(static_cast<int64_t>(rate.samples_per_s)),
                       rate.samples_per_s / result.rates.front().samples_per_s,
                       rate.layout == result.chosen ? "  chosen" : "");
  }
  if (!out.empty()) out.pop_back();
  return out;
}

}  // namespace troika
