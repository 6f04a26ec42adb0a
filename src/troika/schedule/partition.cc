#include "troika/schedule/partition.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "troika/base/error.h"
#include "troika/base/text.h"
#include "troika/schedule/layer_sums.h"

namespace troika {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kMost = std::numeric_limits<double>::max();

std::string named(const std::vector<LayerCost>& layers, size_t layer) {
  return fmt::format("layer {} \"{}\"", layer, printable(layers[layer].name, 40));
}

// The memory of stages, and their limits.
class Memory {
 public:
  explicit Memory(const PartitionRequest& request) : request_(request) {
    const auto stages = static_cast<size_t>(request.stages);
    const auto fine = [&](const std::vector<double>& numbers, double most) {
      return numbers.empty() || (numbers.size() == stages && std::ranges::all_of(numbers, [&](double number) {
                                   return number >= 0 && number <= most;
                                 }));
    };
    TROIKA_ASSERT(fine(request.memory_limit, kNever), "one limit per stage, from 0");
    TROIKA_ASSERT(fine(request.micro_batches_held, kMost),
                  "one number of held micro-batches per stage, from 0 and finite");
  }

  double held(size_t stage) const {
    return request_.micro_batches_held.empty() ? 1 : request_.micro_batches_held[stage];
  }
  double needed(size_t stage, const LayerSums& sums) const {
    return std::min(sums.bytes + held(stage) * sums.held_bytes, kMost);
  }
  double limit(size_t stage) const {
    return request_.memory_limit.empty() ? kNever : request_.memory_limit[stage];
  }
  bool fits(size_t stage, const LayerSums& sums) const { return needed(stage, sums) <= limit(stage); }
  double missing(size_t stage, const LayerSums& sums) const { return needed(stage, sums) - limit(stage); }

 private:
  const PartitionRequest& request_;
};

struct Cut {
  std::vector<size_t> starts;
  double largest = kNever;  // cost of a stage; kNever: there is no such partition, and no starts
};

// The partition whose largest cost is the smallest. `cost_of(stage, sums)` must not fall when a layer is
// added to the sums, so the search for a stage's first layer ends where its cost alone is too much.
template <typename Cost>
Cut best_cut(const std::vector<LayerCost>& layers, size_t stages, const Cost& cost_of) {
  const size_t count = layers.size();
  // best[s][e]: the smallest largest cost of the first e layers in s stages.
  std::vector<std::vector<double>> best(stages + 1, std::vector<double>(count + 1, kNever));
  best[0][0] = -kNever;
  for (size_t stage = 0; stage < stages; ++stage) {
    for (size_t end = stage + 1; end <= count; ++end) {
      double& smallest = best[stage + 1][end];
      LayerSums sums;
      for (size_t begin = end; begin-- > stage;) {
        sums.add(layers[begin]);
        const double cost = cost_of(stage, sums);
        if (cost >= smallest) break;
        smallest = std::min(smallest, std::max(cost, best[stage][begin]));
      }
    }
  }
  Cut cut;
  cut.largest = best[stages][count];
  if (cut.largest == kNever) return cut;
  // Of those, the one whose later stages are longest: from the last stage on, each begins as early as it can.
  cut.starts.resize(stages);
  for (size_t stage = stages, end = count; stage-- > 0; end = cut.starts[stage]) {
    LayerSums sums;
    for (size_t begin = end; begin-- > stage;) {
      sums.add(layers[begin]);
      if (cost_of(stage, sums) > cut.largest) break;
      if (best[stage][begin] <= cut.largest) cut.starts[stage] = begin;
    }
  }
  return cut;
}

void check_costs(const std::vector<LayerCost>& layers) {
  const auto check = [&](double LayerCost::*field, double LayerSums::*of_all, std::string_view what) {
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      const double value = layers[layer].*field;
      if (std::isfinite(value) && value >= 0) continue;
      fail_usage("{}: its {} is {}; expected a finite number, 0 or more", named(layers, layer), what, value);
    }
    if (sums_of(layers, 0, layers.size()).*of_all > kMost) {
      fail_usage("the sum of the {} of all {} layers is more than {:.2g}; use a larger unit", what,
                 layers.size(), kMost);
    }
  };
  check(&LayerCost::work, &LayerSums::work, "work");
  check(&LayerCost::bytes, &LayerSums::bytes, "size in bytes");
  check(&LayerCost::held_bytes, &LayerSums::held_bytes, "size of what it holds for backward");
}

// No partition keeps within memory: shows the one that misses it by the fewest bytes, where it misses most.
[[noreturn]] void fail_memory(const std::vector<LayerCost>& layers, size_t stages, const Memory& memory) {
  const Cut nearest = best_cut(
      layers, stages, [&](size_t stage, const LayerSums& sums) { return memory.missing(stage, sums); });
  const auto& starts = nearest.starts;
  const auto end_of = [&](size_t stage) { return stage + 1 < stages ? starts[stage + 1] : layers.size(); };
  size_t worst = 0;
  LayerSums sums;
  double most_missing = -kNever;
  for (size_t stage = 0; stage < starts.size(); ++stage) {
    const LayerSums of_stage = sums_of(layers, starts[stage], end_of(stage));
    const double missing = memory.missing(stage, of_stage);
    if (missing <= most_missing) continue;
    most_missing = missing;
    worst = stage;
    sums = of_stage;
  }
  const auto need = [&](size_t layer) { return memory.needed(worst, sums_of(layers, layer, layer + 1)); };
  size_t largest = starts[worst];
  for (size_t layer = largest; layer < end_of(worst); ++layer) {
    if (need(layer) > need(largest)) largest = layer;
  }
  const bool alone = end_of(worst) - starts[worst] == 1;
  const std::string which =
      alone ? fmt::format("{} alone", named(layers, largest))
            : fmt::format("{} to {}", named(layers, starts[worst]), named(layers, end_of(worst) - 1));
  const std::string most =
      alone ? ""
            : fmt::format("; its largest is {} with {}", named(layers, largest), human_bytes(need(largest)));
  fail_usage(
      "no partition into {} stage{} keeps within memory; in the nearest one stage {} ({}) needs {} ({} + "
      "{:.4g} x "
      "{} held for backward), {} more than its limit of {}{}; use {}smaller micro-batches, a schedule that "
      "holds fewer of them, recompute, or a higher limit",
      stages, stages == 1 ? "" : "s", worst, which, human_bytes(memory.needed(worst, sums)),
      human_bytes(sums.bytes), memory.held(worst), human_bytes(sums.held_bytes), human_bytes(most_missing),
      human_bytes(memory.limit(worst)), most, alone ? "" : "more stages, ");
}

}  // namespace

Partition partition(const std::vector<LayerCost>& layers, const PartitionRequest& request) {
  TROIKA_ASSERT(request.stages >= 1, fmt::format("{} stages", request.stages));
  const auto stages = static_cast<size_t>(request.stages);
  if (layers.empty()) fail_usage("the model has no layers: there is nothing to cut into stages");
  if (layers.size() < stages) {
    const size_t count = layers.size();
    fail_usage(
        "{} layer{} can't fill {} stages: each stage needs at least one; use --mesh pipeline={}{}, or a "
        "model "
        "with more layers",
        count, count == 1 ? "" : "s", stages, count, count == 1 ? "" : " or fewer");
  }
  check_costs(layers);
  const Memory memory(request);
  const Cut cut = best_cut(layers, stages, [&](size_t stage, const LayerSums& sums) {
    return memory.fits(stage, sums) ? sums.work : kNever;
  });
  if (cut.starts.empty()) fail_memory(layers, stages, memory);
  return {{cut.starts.begin(), cut.starts.end()}, cut.largest};
}

std::vector<int64_t> cuts_by_name(const std::vector<std::string>& layers,
                                  const std::vector<std::string>& cuts) {
  constexpr std::string_view kOrder =
      "cuts name the layers that begin stages 1, 2, ..., in the model's order";
  std::vector<int64_t> starts = {0};
  for (const std::string& cut : cuts) {
    const std::string shown = printable(cut, 40);
    const auto found = std::ranges::find(layers, cut);
    if (found == layers.end()) {
      std::vector<std::string> names;
      for (const std::string& layer : layers) names.push_back(printable(layer, 40));
      const bool cropped = names.size() > 20;
      const size_t count = layers.size();
      if (cropped) names.resize(20);
      fail_usage("cuts: there is no layer \"{}\"{}; the {} layers are {}{}", shown,
                 did_you_mean(cut.substr(0, 100), layers), count, fmt::join(names, ", "),
                 cropped ? ", ..." : "");
    }
    if (std::find(found + 1, layers.end(), cut) != layers.end()) {
      fail_usage("cuts: two layers are named \"{}\"; give them different names", shown);
    }
    const int64_t start = found - layers.begin();
    if (start == 0)
      fail_usage("cuts: \"{}\" is the first layer, so stage 0 begins with it; {}", shown, kOrder);
    if (std::ranges::find(starts, start) != starts.end()) {
      fail_usage("cuts: \"{}\" is given twice; {}", shown, kOrder);
    }
    if (start < starts.back()) {
      fail_usage("cuts: \"{}\" (layer {}) is given after \"{}\" (layer {}); {}", shown, start,
                 printable(layers[static_cast<size_t>(starts.back())], 40), starts.back(), kOrder);
    }
    starts.push_back(start);
  }
  return starts;
}

}  // namespace troika
