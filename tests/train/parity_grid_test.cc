// Every synchronous schedule of the catalogue, with every kind of model and number of lanes: bit for bit the
// micro-batched reference in float32, and the plain run of the whole batch but for rounding in float64.
//
// The other factors (micro-batches, dropout, recompute) go round, so that each schedule meets each of their
// values, and each pair of values of two factors meets somewhere. All combinations would be ten times as
// many.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <algorithm>
#include <array>
#include <set>

#include "troika/base/error.h"
#include "troika/parallel/recompute.h"
#include "troika/schedule/catalogue.h"
#include "troika/schedule/passes.h"
#include "troika/train/models/encoder_layer.h"
#include "troika/train/models/registry.h"
#include "troika/train/verify.h"

namespace troika {
namespace {

constexpr int64_t kSamples = 61;  // uneven; 8 groups of BatchNorm, the last of 5
constexpr int64_t kGroup = 8, kWords = 11, kTime = 4, kFeatures = 3, kWidth = 8;
constexpr int64_t kSteps = 2;

const std::vector<std::string> kModels = {"mlp", "transformer", "lstm", "cnn"};
const std::vector<int> kLanes = {1, 2, 3, 4}, kMicroBatches = {1, 2, 3, 5, 8};
const std::vector<std::string> kRecompute = {"nothing", "stages", "layers"};

struct EmbedImpl : torch::nn::Module {
  Tensors forward(const Tensors& in) { return {table(in[0]), table(in[0])}; }
  torch::nn::Embedding table{register_module("table", torch::nn::Embedding(kWords, kWidth))};
};

struct AddImpl : torch::nn::Module {
  Tensors forward(const Tensors& in) { return {in[0] + in[1]}; }
};

/// Predicts a word at every place; the words come back in before the last norm.
std::vector<Layer> transformer(double dropout) {
  EncoderLayerOptions block;
  block.width = kWidth;
  block.heads = 2;
  block.inner = 2 * kWidth;
  block.dropout = dropout;
  std::vector<Layer> layers = {layer<EmbedImpl>("embed").put("words")};
  for (int i = 1; i <= 4; ++i) layers.push_back(encoder_layer(fmt::format("block{}", i), block));
  layers.push_back(layer<AddImpl>("add").get("words"));
  layers.push_back(layer<torch::nn::LayerNormImpl>("norm", torch::nn::LayerNormOptions({kWidth})));
  layers.push_back(
      layer<torch::nn::LinearImpl>("decode", kWidth, kWords).tie("weight", "embed", "table.weight"));
  return layers;
}

/// Eight layers: enough for two stages on each of four lanes.
std::vector<Layer> layers_of(const std::string& model, double dropout) {
  if (model == "transformer") return transformer(dropout);
  ModelRecipe recipe;
  recipe.type = model;
  recipe.width = kWidth;
  recipe.layers = 7;
  recipe.dropout = dropout;
  return make_model(recipe, ModelShape{kFeatures, {}, 1, model == "mlp" ? 0 : kTime});
}

LossValue squared_error(const Tensors& outputs, const Batch& batch) {
  return {(outputs.at(0) - batch.target).square().sum(), static_cast<double>(batch.samples)};
}

LossValue cross_entropy(const Tensors& outputs, const Batch& batch) {
  const at::Tensor target = batch.target.flatten();
  return {at::cross_entropy_loss(outputs.at(0).flatten(0, 1), target, {}, at::Reduction::Sum),
          static_cast<double>(target.numel())};
}

/// The same samples whatever the cut.
Batch batch_of(const std::string& model, int64_t step, Range samples, at::ScalarType dtype) {
  const int64_t rows = model == "mlp" ? 1 : kTime;
  const at::Tensor index =
      (at::arange(samples.begin * rows, samples.end * rows) + step * kSamples * rows).view({-1, rows});
  Batch batch;
  batch.samples = samples.size();
  if (model == "transformer") {
    batch.inputs = {(index * index + 3 * index).remainder(kWords)};
    batch.target = (7 * batch.inputs[0] + 3).remainder(kWords);
    return batch;
  }
  const at::Tensor turns = index.unsqueeze(-1) * kFeatures + at::arange(kFeatures);
  const at::Tensor x = (turns.to(at::kDouble) * 1.7).sin();
  batch.target = x.sum({1, 2}).view({-1, 1}).to(dtype);
  batch.inputs = {(model == "mlp" ? x.squeeze(1) : x).to(dtype)};
  return batch;
}

struct Case {
  std::string schedule, model;
  int lanes = 1, micro_batches = 1;
  bool dropout = false;
  std::string recompute;
  Schedule made;

  /// One value of each factor.
  std::array<std::string, 6> factors() const {
    return {"schedule " + schedule,
            "model " + model,
            fmt::format("{} lanes", lanes),
            fmt::format("{} micro-batches", micro_batches),
            dropout ? "dropout" : "no dropout",
            "recompute " + recompute};
  }
};

std::optional<Schedule> schedule_of(const std::string& name, int lanes, int micro_batches) {
  try {
    return make_schedule(name, {.lanes = lanes, .micro_batches = micro_batches});
  } catch (const UsageError&) {
    return std::nullopt;  // not for these numbers
  }
}

std::vector<std::string> synchronous() {
  std::vector<std::string> names;
  for (const CatalogueEntry& entry : catalogue()) {
    if (!entry.asynchronous) names.emplace_back(entry.name);
  }
  return names;
}

/// Each model on each number of lanes once. Where the next number of micro-batches doesn't fit the schedule,
/// the one after it is taken.
std::vector<Case> cases_of(const std::string& schedule) {
  const auto names = synchronous();
  const auto first = static_cast<size_t>(std::ranges::find(names, schedule) - names.begin());
  size_t turn = first;
  std::vector<Case> cases;
  for (size_t m = 0; m < kModels.size(); ++m) {
    for (const int lanes : kLanes) {
      std::optional<Schedule> made;
      for (size_t tries = 0; !made && tries < kMicroBatches.size(); ++tries) {
        made = schedule_of(schedule, lanes, kMicroBatches[++turn % kMicroBatches.size()]);
      }
      if (!made) continue;
      Case c{schedule, kModels[m], lanes, made->num_micro_batches, false, "", std::move(*made)};
      c.dropout = (turn + m) % 2 == 0;
      c.recompute = kRecompute[(cases.size() + m + first) % kRecompute.size()];
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

PipelineOptions pipeline_of(const Case& c, size_t layers) {
  const int stages = c.made.num_stages();
  PipelineOptions pipeline{c.made, {}};
  std::vector<int> all;
  for (int s = 0; s < stages; ++s) {
    all.push_back(s);
    pipeline.starts.push_back(share({0, static_cast<int64_t>(layers)}, stages, s).begin);
  }
  if (c.recompute == "stages") pipeline.schedule = with_recompute(c.made, all);
  return pipeline;
}

VerifyWork work_of(const Case& c) {
  VerifyWork work;
  work.layers = layers_of(c.model, c.dropout ? 0.3 : 0);
  if (c.recompute == "layers") work.layers = recompute_matching(std::move(work.layers), {"*"}, "all");
  work.loss = c.model == "transformer" ? cross_entropy : squared_error;
  work.options.optimizer = {.kind = Optimizer::Kind::sgd, .learning_rate = 0.02, .momentum = 0.9};
  work.options.seed = 3;
  work.options.batch_norm_group = c.model == "cnn" ? kGroup : 0;
  work.options.mesh = Mesh{1, c.lanes, 1};
  work.options.pipeline = pipeline_of(c, work.layers.size());
  work.ranks = 1;
  work.micro_batches = c.micro_batches;
  work.steps = kSteps;
  work.batch_size = [](int64_t) { return kSamples; };
  work.batch = [model = c.model](int64_t step, Range samples, at::ScalarType dtype) {
    return batch_of(model, step, samples, dtype);
  };
  return work;
}

class ParityGrid : public testing::TestWithParam<std::string> {};

TEST_P(ParityGrid, LossGradientsAndWeightsAreThoseOfTheSerialRuns) {
  for (const Case& c : cases_of(GetParam())) {
    const VerifyWork work = work_of(c);
    const Model model(work.layers, 0, at::kDouble);
    // Without rounding to speak of: sums over samples are added piece by piece, which in float64 moves a
    // number by some 1e-15 of the largest one that was added; verify allows 1e-10. In float32 a ReLU whose
    // input rounds to the other side of 0 would change a gradient by a sample's whole share.
    const VerifyResult result = verify(work, at::kDouble);
    const std::string what = fmt::format("{}", fmt::join(c.factors(), ", "));
    const std::string where =
        result.first_difference
            ? fmt::format(": {} {} of step {}", result.first_difference->what,
                          result.first_difference->parameter, result.first_difference->step)
            : "";
    EXPECT_EQ(work.options.dtype, at::kFloat);
    EXPECT_TRUE(result.bitwise) << what << where;
    EXPECT_TRUE(result.equal) << what << where << ", relative " << result.max_rel_diff;
    EXPECT_EQ(result.losses, kSteps) << what;
    EXPECT_EQ(result.gradients, kSteps * std::ssize(model.parameters())) << what;
    EXPECT_EQ(result.weights, (kSteps + 1) * std::ssize(model.parameters())) << what;
    EXPECT_EQ(result.buffers, kSteps * std::ssize(model.others())) << what;
    if (HasFailure()) return;
  }
}
INSTANTIATE_TEST_SUITE_P(Schedules, ParityGrid, testing::ValuesIn(synchronous()));

TEST(ParityGridCases, EachScheduleMeetsEachValueAndAllPairsOfOtherFactorsMeet) {
  std::set<std::string> met;
  for (const std::string& schedule : synchronous()) {
    for (const Case& c : cases_of(schedule)) {
      const auto factors = c.factors();
      for (size_t i = 0; i < factors.size(); ++i) {
        for (size_t j = i + 1; j < factors.size(); ++j) met.insert(factors[i] + " + " + factors[j]);
      }
    }
  }
  std::array<std::vector<std::string>, 6> values;
  for (const std::string& name : synchronous()) values[0].push_back("schedule " + name);
  for (const std::string& name : kModels) values[1].push_back("model " + name);
  for (const int lanes : kLanes) values[2].push_back(fmt::format("{} lanes", lanes));
  for (const int count : kMicroBatches) values[3].push_back(fmt::format("{} micro-batches", count));
  values[4] = {"dropout", "no dropout"};
  for (const std::string& what : kRecompute) values[5].push_back("recompute " + what);

  const auto can_be = [](const std::string& schedule, int micro_batches) {
    return std::ranges::any_of(
        kLanes, [&](int lanes) { return schedule_of(schedule, lanes, micro_batches).has_value(); });
  };
  for (size_t i = 0; i < values.size(); ++i) {
    for (size_t j = i + 1; j < values.size(); ++j) {
      for (size_t a = 0; a < values[i].size(); ++a) {
        for (size_t b = 0; b < values[j].size(); ++b) {
          if (i == 0 && j == 3 && !can_be(synchronous()[a], kMicroBatches[b])) continue;
          const std::string pair = values[i][a] + " + " + values[j][b];
          EXPECT_TRUE(met.contains(pair)) << pair;
        }
      }
    }
  }
}

}  // namespace
}  // namespace troika
