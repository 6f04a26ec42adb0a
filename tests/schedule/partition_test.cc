#include "troika/schedule/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/error_of.h"
#include "support/fuzz.h"

namespace troika {
namespace {

std::vector<LayerCost> layers_of_work(const std::vector<double>& works) {
  std::vector<LayerCost> layers;
  for (const double work : works) layers.push_back({fmt::format("layer{}", layers.size()), work, 0, 0});
  return layers;
}

Partition cut(const std::vector<double>& works, int stages) {
  return partition(layers_of_work(works), {.stages = stages});
}

using Starts = std::vector<int64_t>;

double memory_of(const std::vector<LayerCost>& layers, const PartitionRequest& request, size_t stage,
                 int64_t begin, int64_t end) {
  double bytes = 0;
  for (int64_t layer = begin; layer < end; ++layer) {
    const LayerCost& cost = layers[static_cast<size_t>(layer)];
    const double held = request.micro_batches_held.empty() ? 1 : request.micro_batches_held[stage];
    bytes += cost.bytes + held * cost.held_bytes;
  }
  return bytes;
}

// What is tried by trying everything.
struct Tried {
  Starts starts;  // empty: nothing keeps within memory
  double largest_work = std::numeric_limits<double>::infinity();
  double least_missing = std::numeric_limits<double>::infinity();  // bytes, of the worst stage
};

void try_all(const std::vector<LayerCost>& layers, const PartitionRequest& request, Starts& starts,
             Tried& tried) {
  const auto stages = static_cast<size_t>(request.stages);
  const auto count = static_cast<int64_t>(layers.size());
  if (starts.size() < stages) {
    for (int64_t next = starts.back() + 1; next < count; ++next) {
      starts.push_back(next);
      try_all(layers, request, starts, tried);
      starts.pop_back();
    }
    return;
  }
  double largest = 0, missing = -std::numeric_limits<double>::infinity();
  for (size_t stage = 0; stage < stages; ++stage) {
    const int64_t end = stage + 1 < stages ? starts[stage + 1] : count;
    double work = 0;
    for (int64_t layer = starts[stage]; layer < end; ++layer) work += layers[static_cast<size_t>(layer)].work;
    largest = std::max(largest, work);
    if (request.memory_limit.empty()) continue;
    missing = std::max(missing,
                       memory_of(layers, request, stage, starts[stage], end) - request.memory_limit[stage]);
  }
  tried.least_missing = std::min(tried.least_missing, missing);
  if (missing > 0 || largest > tried.largest_work) return;
  // Of equal ones, later stages longest: their starts, from the last one, are the smallest.
  const bool better = largest < tried.largest_work ||
                      std::lexicographical_compare(starts.rbegin(), starts.rend(), tried.starts.rbegin(),
                                                   tried.starts.rend());
  if (!better) return;
  tried.starts = starts;
  tried.largest_work = largest;
}

Tried try_all(const std::vector<LayerCost>& layers, const PartitionRequest& request) {
  Tried tried;
  Starts starts = {0};
  try_all(layers, request, starts, tried);
  return tried;
}

// Multiples of 1/8, so that sums are exact in any order.
std::vector<LayerCost> random_layers(FuzzRandom& random, size_t count) {
  const size_t most = random.one_of(std::vector<size_t>{1, 2, 4, 1000});
  std::vector<LayerCost> layers;
  for (size_t layer = 0; layer < count; ++layer) {
    layers.push_back({fmt::format("layer{}", layer), static_cast<double>(random.below(most)) / 8,
                      static_cast<double>(random.below(40)), static_cast<double>(random.below(10))});
  }
  return layers;
}

TEST(Partition, IsTheBestOfAll) {
  FuzzRandom random(1);
  int different = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    PartitionRequest request;
    request.stages = static_cast<int>(1 + random.below(5));
    const size_t count = static_cast<size_t>(request.stages) + random.below(6);
    const std::vector<LayerCost> layers = random_layers(random, count);
    const Tried best = try_all(layers, request);
    const Partition found = partition(layers, request);
    ASSERT_EQ(found.starts, best.starts) << trial;
    ASSERT_EQ(found.largest_work, best.largest_work) << trial;
    Starts even;
    for (int stage = 0; stage < request.stages; ++stage)
      even.push_back(static_cast<int64_t>(count) * stage / request.stages);
    if (found.starts != even) ++different;
  }
  EXPECT_GT(different, 1000);
}

TEST(Partition, IsTheBestOfThoseThatKeepWithinMemory) {
  FuzzRandom random(2);
  int none = 0, held_decides = 0, limit_decides = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    PartitionRequest request;
    request.stages = static_cast<int>(1 + random.below(5));
    const size_t count = static_cast<size_t>(request.stages) + random.below(6);
    const std::vector<LayerCost> layers = random_layers(random, count);
    for (int stage = 0; stage < request.stages; ++stage) {
      request.memory_limit.push_back(static_cast<double>(20 + random.below(150)));
      request.micro_batches_held.push_back(static_cast<double>(random.below(6)));
    }
    if (trial % 7 == 0) request.micro_batches_held.clear();
    if (trial % 11 == 0) request.memory_limit.back() = std::numeric_limits<double>::infinity();
    const Tried best = try_all(layers, request);
    if (best.starts.empty()) {
      ++none;
      const std::string message = error_of([&] { partition(layers, request); });
      ASSERT_NE(message.find(fmt::format("), {} B more than its limit", best.least_missing)),
                std::string::npos)
          << trial << ": " << best.least_missing << "\n"
          << message;
      // What is said to be missing is what has to be added.
      for (double& limit : request.memory_limit) limit += best.least_missing;
      ASSERT_EQ(partition(layers, request).starts, try_all(layers, request).starts);
      continue;
    }
    const Partition found = partition(layers, request);
    ASSERT_EQ(found.starts, best.starts) << trial;
    ASSERT_EQ(found.largest_work, best.largest_work) << trial;
    PartitionRequest without = request;
    without.memory_limit.clear();
    if (partition(layers, without).starts != found.starts) ++limit_decides;
    PartitionRequest once = request;
    once.micro_batches_held.clear();
    if (try_all(layers, once).starts != best.starts) ++held_decides;
  }
  EXPECT_GT(none, 100);
  EXPECT_GT(limit_decides, 100);
  EXPECT_GT(held_decides, 100);
}

TEST(Partition, OfEqualOnesLaterStagesAreLongest) {
  EXPECT_EQ(cut({1, 1, 1, 1, 1}, 2).starts, (Starts{0, 2}));
  EXPECT_EQ(cut({0, 0, 0, 0, 0, 0}, 3).starts, (Starts{0, 1, 2}));
  EXPECT_EQ(cut({0, 0, 9, 0, 0}, 2).starts, (Starts{0, 1}));
  // The large layer decides; the rest could be cut anywhere.
  EXPECT_EQ(cut({1, 1, 1, 9, 1, 1, 1}, 4).starts, (Starts{0, 1, 3, 4}));
  EXPECT_EQ(cut({3, 1}, 1).starts, (Starts{0}));
  EXPECT_EQ(cut({3, 1}, 2).largest_work, 3);
}

TEST(Partition, SmallLayersBehindHugeOnesCount) {
  EXPECT_EQ(cut({1e300, 1, 1, 1, 1}, 3).starts, (Starts{0, 1, 2}));
  const Partition tiny = cut({1e-310, 3e-310, 2e-310, 2e-310}, 2);
  EXPECT_EQ(tiny.starts, (Starts{0, 2}));
  EXPECT_EQ(tiny.largest_work, 2e-310 + 2e-310);
  EXPECT_EQ(cut({1e308, 1, 7e307}, 2).largest_work, 1e308);
  // With prefix sums the memory of layers 1 to 3 would be 0 behind the first one.
  std::vector<LayerCost> layers = layers_of_work({4, 1, 1, 1});
  layers[0].bytes = 1e30;
  for (size_t layer = 1; layer < 4; ++layer) layers[layer].bytes = 10;
  const PartitionRequest request = {.stages = 3, .memory_limit = {1e30, 20, 10}};
  EXPECT_EQ(partition(layers, request).starts, (Starts{0, 1, 3}));
}

TEST(Partition, ScalesWithTheWork) {
  FuzzRandom random(3);
  for (int trial = 0; trial < 300; ++trial) {
    const int stages = static_cast<int>(1 + random.below(8));
    std::vector<LayerCost> layers = random_layers(random, static_cast<size_t>(stages) + random.below(30));
    const Partition once = partition(layers, {.stages = stages});
    const double factor = random.one_of(std::vector<double>{3, 0x1p-900, 0x1p+900, 0.5});
    for (LayerCost& layer : layers) layer.work *= factor;
    const Partition scaled = partition(layers, {.stages = stages});
    ASSERT_EQ(scaled.starts, once.starts) << factor;
    ASSERT_EQ(scaled.largest_work, once.largest_work * factor) << factor;
  }
}

TEST(Partition, AnotherStageNeverMakesItWorse) {
  FuzzRandom random(4);
  for (int trial = 0; trial < 200; ++trial) {
    const std::vector<LayerCost> layers = random_layers(random, 2 + random.below(30));
    double before = std::numeric_limits<double>::infinity();
    for (int stages = 1; stages <= static_cast<int>(layers.size()); ++stages) {
      const double now = partition(layers, {.stages = stages}).largest_work;
      ASSERT_LE(now, before) << stages;
      before = now;
    }
    ASSERT_EQ(before, std::ranges::max_element(layers, {}, &LayerCost::work)->work);
  }
}

// Stages that are filled one after the other with no more than `most`: how many are needed.
int stages_needed(const std::vector<LayerCost>& layers, double most) {
  int stages = 1;
  double work = 0;
  for (const LayerCost& layer : layers) {
    if (layer.work > most) return std::numeric_limits<int>::max();
    if (work + layer.work > most) {
      ++stages;
      work = 0;
    }
    work += layer.work;
  }
  return stages;
}

TEST(Partition, OfManyLayersIsWhatFillingStagesNeeds) {
  FuzzRandom random(5);
  for (const size_t most : {1U, 2U, 5U, 100'000U}) {
    std::vector<LayerCost> layers;
    for (int layer = 0; layer < 400; ++layer) layers.push_back({"", static_cast<double>(random.below(most))});
    const Partition found = partition(layers, {.stages = 64});
    ASSERT_EQ(found.starts.size(), 64U);
    EXPECT_LE(stages_needed(layers, found.largest_work), 64);
    if (most > 1) {
      EXPECT_GT(stages_needed(layers, found.largest_work - 1), 64);
    }
  }
}

TEST(Partition, RefusesFewerLayersThanStages) {
  EXPECT_EQ(
      error_of([] {
        cut({1, 1, 1, 1, 1}, 6);
      }),
      "5 layers can't fill 6 stages: each stage needs at least one; use --mesh pipeline=5 or fewer, or a "
      "model with more layers");
  EXPECT_EQ(
      error_of([] { cut({1}, 2); }),
      "1 layer can't fill 2 stages: each stage needs at least one; use --mesh pipeline=1, or a model with "
      "more layers");
  EXPECT_EQ(error_of([] { cut({}, 1); }), "the model has no layers: there is nothing to cut into stages");
  EXPECT_THROW(cut({1}, 2), UsageError);
}

TEST(Partition, RefusesCostsThatAreNoCosts) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double wrong : {-1.0, kInfinity, -kInfinity, std::nan("")}) {
    for (double LayerCost::*const field : {&LayerCost::work, &LayerCost::bytes, &LayerCost::held_bytes}) {
      std::vector<LayerCost> layers = layers_of_work({1, 2, 3});
      layers[1].*field = wrong;
      layers[1].name = "the\none";
      const std::string message = error_of([&] { partition(layers, {.stages = 2}); });
      EXPECT_TRUE(message.starts_with("layer 1 \"the\\x0Aone\": its ")) << message;
      EXPECT_NE(message.find(fmt::format("is {}; expected a finite number", wrong)), std::string::npos)
          << message;
    }
  }
  EXPECT_EQ(error_of([] {
              cut({1e308, 1, 1e308}, 2);
            }),
            "the sum of the work of all 3 layers is more than 1.8e+308; use a larger unit");
}

TEST(Partition, NamesWhatDoesntFitIntoMemory) {
  constexpr double kGb = 1024.0 * 1024 * 1024;
  const std::vector<LayerCost> layers = {
      {"in", 1, kGb, kGb}, {"wide", 1, 4 * kGb, kGb}, {"narrow", 1, kGb, kGb}, {"head", 1, 6 * kGb, 0}};
  EXPECT_EQ(
      error_of([&] {
        partition(layers, {.stages = 2, .memory_limit = {6 * kGb, 6 * kGb}, .micro_batches_held = {2, 1}});
      }),
      "no partition into 2 stages keeps within memory; in the nearest one stage 0 (layer 0 \"in\" to layer 1 "
      "\"wide\") needs 9.0 GB (5.0 GB + 2 x 2.0 GB held for backward), 3.0 GB more than its limit of 6.0 "
      "GB; its largest is layer 1 \"wide\" with 6.0 GB; use more stages, smaller micro-batches, a schedule "
      "that holds fewer of them, recompute, or a higher limit");
  EXPECT_EQ(
      error_of([&] { partition(layers, {.stages = 4, .memory_limit = std::vector<double>(4, 5 * kGb)}); }),
      "no partition into 4 stages keeps within memory; in the nearest one stage 3 (layer 3 \"head\" "
      "alone) needs 6.0 GB (6.0 GB + 1 x 0 B held for backward), 1.0 GB more than its limit of 5.0 GB; use "
      "smaller micro-batches, a schedule that holds fewer of them, recompute, or a higher limit");
  // Numbers that no machine has don't crash it.
  std::vector<LayerCost> huge = layers_of_work({1, 1});
  huge[0].held_bytes = 1e308;
  const PartitionRequest request = {.stages = 1, .memory_limit = {1}, .micro_batches_held = {1e308}};
  EXPECT_NE(error_of([&] { partition(huge, request); }).find("its largest is layer 0 \"layer0\""),
            std::string::npos);
}

TEST(Partition, WantsOneLimitPerStage) {
  const std::vector<LayerCost> layers = layers_of_work({1, 1});
  EXPECT_DEATH(partition(layers, {.stages = 0}), "0 stages");
  for (const std::vector<double>& wrong : {std::vector<double>{1}, {1, -1}, {1, std::nan("")}}) {
    EXPECT_DEATH(partition(layers, {.stages = 2, .memory_limit = wrong}), "one limit per stage");
    EXPECT_DEATH(partition(layers, {.stages = 2, .micro_batches_held = wrong}), "one number of held");
  }
}

}  // namespace
}  // namespace troika
