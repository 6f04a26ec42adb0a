#include "troika/train/fit.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "troika/base/error.h"

namespace troika {
namespace {

const Loss kSquared =
    per_sample_loss([](const at::Tensor& o, const at::Tensor& t) { return (o - t).square(); });

std::vector<Layer> line() { return {layer<torch::nn::LinearImpl>("line", 3, 1)}; }

at::Tensor inputs(int64_t samples) {
  return at::arange(samples * 3, at::kFloat).mul(0.37f).sin().view({samples, 3});
}

FitOptions options(int ranks) {
  FitOptions o;
  o.ranks = ranks;
  o.batch = 16;
  o.epochs = 3;
  o.replica.optimizer.learning_rate = 0.05;
  return o;
}

// 50 samples in batches of 16: the last batch of 2 leaves the third rank without a sample.
TEST(Fit, TheNumberOfRanksDoesNotChangeTheResult) {
  const at::Tensor x = inputs(50), y = x.sum(1, true);
  const FitResult one = fit(line(), kSquared, {x}, y, options(1));
  for (const int ranks : {2, 3}) {
    const FitResult many = fit(line(), kSquared, {x}, y, options(ranks));
    ASSERT_EQ(many.losses.size(), 3u);
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(many.losses[i], one.losses[i], 1e-5 * one.losses[i]);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(
          at::allclose(many.model.parameters()[i].tensor, one.model.parameters()[i].tensor, 1e-5, 1e-6));
    }
  }
  EXPECT_LT(one.losses.back(), one.losses.front());
}

TEST(Fit, StopsWhenTold) {
  FitOptions o = options(2);
  o.on_epoch = [](int64_t epoch, double) { return epoch < 2; };
  const at::Tensor x = inputs(20);
  EXPECT_EQ(fit(line(), kSquared, {x}, x.sum(1, true), o).losses.size(), 2u);
}

TEST(Fit, NoSamplesChangeNothing) {
  const at::Tensor x = inputs(0);
  const FitResult result = fit(line(), kSquared, {x}, x.sum(1, true), options(2));
  const Model untouched(line(), 0);
  EXPECT_TRUE(at::equal(result.model.parameters()[0].tensor, untouched.parameters()[0].tensor));
}

TEST(Fit, MistakesAreNamed) {
  const at::Tensor x = inputs(20), y = x.sum(1, true);
  EXPECT_THROW(fit(line(), kSquared, {x}, y.narrow(0, 0, 19), options(1)), UsageError);
  EXPECT_THROW(fit(line(), kSquared, {}, y, options(1)), UsageError);
  const Loss mean =
      per_sample_loss([](const at::Tensor& o, const at::Tensor& t) { return (o - t).square().mean(); });
  for (const int ranks : {1, 2}) {
    try {
      fit(line(), mean, {x}, y, options(ranks));
      FAIL() << "accepted a loss that is a mean already";
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("one loss per sample"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace troika
