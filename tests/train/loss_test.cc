#include "troika/train/loss.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

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
