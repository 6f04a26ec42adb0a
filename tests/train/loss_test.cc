#include "troika/train/loss.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "troika/base/random.h"
#include "troika/train/metrics.h"
#include "troika/train/models/mlp.h"

namespace troika {
namespace {

LossValue loss_of(LossKind kind, const at::Tensor& output, const at::Tensor& target) {
  return make_loss(kind)({output}, {{}, target, output.size(0)});
}

TEST(Loss, SumsOverSamplesByTheFormula) {
  const at::Tensor output = at::tensor({1.0, -2.0, 0.5}).view({3, 1});
  const at::Tensor target = at::tensor({0.0, 1.0, 0.25}).view({3, 1});
  EXPECT_NEAR(loss_of(LossKind::mse, output, target).sum.item<double>(), 1 + 9 + 0.0625, 1e-6);
  EXPECT_NEAR(loss_of(LossKind::mae, output, target).sum.item<double>(), 1 + 3 + 0.25, 1e-6);
  EXPECT_NEAR(loss_of(LossKind::huber, output, target).sum.item<double>(), 0.5 + 2.5 + 0.03125, 1e-6);
  EXPECT_EQ(loss_of(LossKind::mse, output, target).weight, 3);
}

TEST(Loss, SeveralNumbersAreAveragedWithinASample) {
  const at::Tensor output = at::tensor({1.0, 3.0, 0.0, 0.0}).view({2, 2});
  const LossValue value = loss_of(LossKind::mse, output, at::zeros({2, 2}));
  EXPECT_NEAR(value.sum.item<double>(), 5, 1e-6);
  EXPECT_EQ(value.weight, 2);
}

at::Tensor numbers_from(uint64_t seed, int64_t rows, int64_t columns) {
  at::Tensor out = at::empty({rows, columns}, at::kDouble);
  for (int64_t i = 0; i < rows * columns; ++i) {
    out.mutable_data_ptr<double>()[i] = 4 * uniform(seed, static_cast<uint64_t>(i)) - 2;
  }
  return out;
}

/// What the loss of one sample is, from make_loss without weights.
double loss_of_sample(LossKind kind, const at::Tensor& output, const at::Tensor& target, int64_t i) {
  return loss_of(kind, output.narrow(0, i, 1), target.narrow(0, i, 1)).sum.item<double>();
}

TEST(Loss, WeightsMultiplySamplesAndAddUpOverPieces) {
  constexpr LossKind kKinds[] = {LossKind::mse, LossKind::mae, LossKind::huber,
                                 LossKind::binary_cross_entropy, LossKind::cross_entropy};
  constexpr int64_t kSamples = 7;
  for (const LossKind kind : kKinds) {
    const bool binary = kind == LossKind::binary_cross_entropy, classes = kind == LossKind::cross_entropy;
    const at::Tensor output = numbers_from(1, kSamples, binary ? 1 : 3);
    at::Tensor target = numbers_from(2, kSamples, binary ? 1 : 3);
    if (binary) target = target.gt(0).to(at::kDouble);
    if (classes) target = at::tensor({0, 2, 1, 1, 0, 2, 2}, at::kLong);
    const at::Tensor weights = at::tensor({0.5, 2.0, 0.0, 1.0, 3.25, 0.125, 1.0}, at::kDouble);
    double expected = 0;
    for (int64_t i = 0; i < kSamples; ++i) {
      expected += weights[i].item<double>() * loss_of_sample(kind, output, target, i);
    }
    const Loss loss = make_loss(kind);
    const LossValue whole = loss({output}, {{}, target, kSamples, 0, weights});
    EXPECT_NEAR(whole.sum.item<double>(), expected, 1e-12) << name_of(kind);
    EXPECT_EQ(whole.weight, 7.875);
    double sum = 0, weight = 0;
    for (const auto& [begin, size] : {std::pair{0, 2}, {2, 1}, {3, 4}}) {
      const auto part = [begin = begin, size = size](const at::Tensor& t) {
        return t.narrow(0, begin, size);
      };
      const LossValue piece = loss({part(output)}, {{}, part(target), size, begin, part(weights)});
      sum += piece.sum.item<double>();
      weight += piece.weight;
    }
    EXPECT_NEAR(sum, expected, 1e-12) << name_of(kind);
    EXPECT_EQ(weight, 7.875);
    // Weights of 1 are none, and a model in float32 may have weights in float64.
    const LossValue ones = loss({output}, {{}, target, kSamples, 0, at::ones({kSamples}, at::kDouble)});
    const LossValue none = loss({output}, {{}, target, kSamples});
    EXPECT_NEAR(ones.sum.item<double>(), none.sum.item<double>(), 1e-12);
    EXPECT_EQ(ones.weight, none.weight);
    const at::Tensor small = output.to(at::kFloat), small_target = classes ? target : target.to(at::kFloat);
    const LossValue single = loss({small}, {{}, small_target, kSamples, 0, weights});
    EXPECT_EQ(single.sum.scalar_type(), at::kFloat);
    EXPECT_NEAR(single.sum.item<double>(), expected, 1e-5);
  }
}

TEST(Loss, WeightedGradientsAreThoseOfTheWeightedMean) {
  const at::Tensor output = numbers_from(3, 4, 2).requires_grad_();
  const at::Tensor target = numbers_from(4, 4, 2);
  const at::Tensor weights = at::tensor({1.0, 0.0, 2.0, 0.5}, at::kDouble);
  const LossValue value = make_loss(LossKind::mse)({output}, {{}, target, 4, 0, weights});
  value.sum.backward();
  const at::Tensor expected = (output.detach() - target) * weights.unsqueeze(1);  // 2 (x - y) w / 2
  EXPECT_LT((output.grad() - expected).abs().max().item<double>(), 1e-12);
}

TEST(Loss, CrossEntropies) {
  const at::Tensor logits = at::tensor({2.0, -1.0}).view({2, 1});
  const at::Tensor answers = at::tensor({1.0, 1.0}).view({2, 1});
  EXPECT_NEAR(loss_of(LossKind::binary_cross_entropy, logits, answers).sum.item<double>(),
              std::log1p(std::exp(-2.0)) + std::log1p(std::exp(1.0)), 1e-6);
  const at::Tensor three = at::tensor({1.0, 2.0, 3.0}).view({1, 3});
  EXPECT_NEAR(loss_of(LossKind::cross_entropy, three, at::tensor({int64_t{2}})).sum.item<double>(),
              std::log(1 + std::exp(-1.0) + std::exp(-2.0)), 1e-6);
}

TEST(Metrics, AgreeWithTheLosses) {
  FeaturePlan plan;
  plan.kind = TargetKind::classes;
  plan.targets.push_back({"sort", Storage::floats, 0, 0, 1, {"a", "b", "c"}});
  MetricSums sums(plan);
  const std::vector<double> logits = {1, 2, 3, 5, 0, 0, 700, 0, -700}, targets = {2, 1, 0};
  sums.add(plan, 3, 3, logits.data(), targets.data(), 0);
  EXPECT_NEAR(sums.metrics(plan)["accuracy"], 2.0 / 3, 1e-12);
  const double loss = std::log(1 + std::exp(-1.0) + std::exp(-2.0)) + std::log(2 + std::exp(5.0));
  EXPECT_NEAR(sums.metrics(plan)["log_loss"], loss / 3, 1e-12);
}

TEST(Mlp, LayersAndShapes) {
  ModelRecipe recipe;
  recipe.width = 8;
  recipe.layers = 2;
  const auto layers = make_mlp(recipe, {3, {4, 200}, 2});
  std::vector<std::string> names;
  for (const Layer& each : layers) names.push_back(each.name);
  EXPECT_EQ(names, (std::vector<std::string>{"embed", "hidden1", "hidden2", "head"}));
  EXPECT_EQ(embedding_width(4), 2);
  EXPECT_EQ(embedding_width(200), 50);
  const Model model(layers, 1);
  const Tensors out = model.forward({at::zeros({5, 3}), at::zeros({5, 2}, at::kLong)});
  EXPECT_EQ(out.at(0).sizes(), (std::vector<int64_t>{5, 2}));
  const auto plain = make_mlp(recipe, {3, {}, 1});
  EXPECT_EQ(plain.front().name, "hidden1");
}

}  // namespace
}  // namespace troika
