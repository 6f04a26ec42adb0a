// The masks themselves: which number decides which element, their statistics, and that dropout is torch's own
// outside of a step.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "troika/base/error.h"
#include "troika/base/random.h"
#include "troika/parallel/model.h"
#include "troika/parallel/noise_mask.h"
#include "troika/parallel/step_context.h"

namespace troika::test {
namespace {

constexpr int64_t kRows = 64, kColumns = 512;

Model dropping(double p, int layers = 1, uint64_t seed = 0) {
  std::vector<Layer> list;
  for (int i = 0; i < layers; ++i) list.push_back(layer<torch::nn::DropoutImpl>(fmt::format("drop{}", i), p));
  return Model(list, seed);
}

/// What is kept of ones, as 0 and 1.
torch::Tensor kept(const Model& model, const StepContext& context, size_t layer_index = 0) {
  const StepScope scope(context);
  const torch::Tensor ones = torch::ones({context.samples.size(), kColumns});
  return model.forward_layer(layer_index, {ones})[0].ne(0).to(torch::kDouble);
}

TEST(NoiseMask, IsPhiloxBySampleAndElement) {
  constexpr uint64_t kKey = 0x0123456789abcdef;
  constexpr double kP = 0.3;
  const auto limit = static_cast<uint32_t>(std::round(kP * 0x1p32));
  for (const NoiseLayout& layout :
       {NoiseLayout{1, 5, 7}, NoiseLayout{3, 4, 10}, NoiseLayout{7, 3, 1}, NoiseLayout{1, 1, 1000},
        NoiseLayout{1, 2, 513}, NoiseLayout{1, 1, 33, true}}) {
    std::vector<double> mask(static_cast<size_t>(layout.outer * layout.samples * layout.inner), -1);
    draw_mask<double>(kKey, 11, layout, kP, 2.0, mask.data());
    size_t at = 0;
    for (int64_t o = 0; o < layout.outer; ++o) {
      for (int64_t s = 0; s < layout.samples; ++s) {
        for (int64_t i = 0; i < layout.inner; ++i, ++at) {
          const auto element = static_cast<uint64_t>(o * layout.inner + i);
          const uint64_t sample = layout.shared ? ~uint64_t{0} : static_cast<uint64_t>(11 + s);
          ASSERT_EQ(mask[at], philox(kKey, sample, element / 4)[element % 4] < limit ? 0.0 : 2.0) << at;
        }
      }
    }
  }
}

TEST(NoiseMask, AlmostNothingAndAlmostAll) {
  std::vector<float> mask(1000, -1);
  draw_mask<float>(1, 0, {1, 10, 100}, 1e-12, 1.0f, mask.data());
  EXPECT_EQ(std::count(mask.begin(), mask.end(), 1.0f), 1000);
  draw_mask<float>(1, 0, {1, 10, 100}, 1 - 1e-12, 1.0f, mask.data());
  EXPECT_EQ(std::count(mask.begin(), mask.end(), 0.0f), 1000);
}

/// Of two masks of probability 1/2, in standard deviations.
double correlation(const torch::Tensor& a, const torch::Tensor& b) {
  return ((2 * a - 1) * (2 * b - 1)).mean().item<double>() * std::sqrt(static_cast<double>(a.numel()));
}

TEST(KeyedDropout, KeepsTheRightPartAndKnowsNoPattern) {
  const StepContext context{.seed = 3, .step = 1, .samples = {0, kRows}};
  for (const double p : {0.1, 0.5, 0.9}) {
    const double mean = kept(dropping(p), context).mean().item<double>();
    EXPECT_NEAR(mean, 1 - p, 5 * std::sqrt(p * (1 - p) / (kRows * kColumns))) << p;
  }
  const Model model = dropping(0.5, 2);
  const torch::Tensor mask = kept(model, context);
  StepContext other_step = context, other_seed = context, other_samples = context;
  other_step.step = 2;
  other_seed.seed = 4;
  other_samples.samples = {kRows, 2 * kRows};
  EXPECT_LT(std::abs(correlation(mask, kept(model, other_step))), 5) << "the next step";
  EXPECT_LT(std::abs(correlation(mask, kept(model, other_seed))), 5) << "another seed";
  EXPECT_LT(std::abs(correlation(mask, kept(model, context, 1))), 5) << "the next layer";
  EXPECT_LT(std::abs(correlation(mask, kept(model, other_samples))), 5) << "other samples";
  EXPECT_LT(std::abs(correlation(mask, mask.roll({1}, {0}))), 5) << "the next sample";
  EXPECT_LT(std::abs(correlation(mask, mask.roll({1}, {1}))), 5) << "the next element";
  EXPECT_TRUE(torch::equal(mask, kept(model, context))) << "a pure function";
  StepContext half = context;
  half.samples = {10, 20};
  EXPECT_TRUE(torch::equal(mask.narrow(0, 10, 10), kept(model, half))) << "by place in the global batch";
}

struct TwiceImpl : torch::nn::Module {
  Tensors forward(const Tensors& x) {
    return {torch::dropout(x[0], 0.5, true), torch::dropout(x[0], 0.5, true)};
  }
};

TEST(KeyedDropout, CallsInALayerDiffer) {
  const Model model({layer<TwiceImpl>("twice")}, 0);
  const StepScope scope({.step = 1, .samples = {0, kRows}});
  const Tensors both = model.forward({torch::ones({kRows, kColumns})});
  EXPECT_LT(std::abs(correlation(both[0].ne(0).to(torch::kDouble), both[1].ne(0).to(torch::kDouble))), 5);
}

TEST(KeyedDropout, TypesProbabilitiesAndErrorsAreTorchs) {
  const torch::Tensor ones = torch::ones({4, 8});
  const auto with_step = [&](const torch::Tensor& x, double p) {
    const StepScope scope({.step = 1, .samples = {0, 4}});
    return torch::dropout(x, p, true);
  };
  const torch::Tensor mask = with_step(ones, 0.75);
  EXPECT_TRUE(torch::equal(mask, mask.ne(0).to(torch::kFloat) * 4));
  for (const auto type : {torch::kDouble, torch::kBFloat16, torch::kHalf}) {
    const torch::Tensor other = with_step(ones.to(type), 0.75);
    EXPECT_EQ(other.scalar_type(), type);
    EXPECT_TRUE(torch::equal(other.to(torch::kFloat), mask)) << "the same elements in every type";
  }
  EXPECT_TRUE(torch::equal(with_step(ones, 0), ones));
  EXPECT_TRUE(torch::equal(with_step(ones, 1), torch::zeros_like(ones)));
  EXPECT_EQ(with_step(torch::ones({0, 3}), 0.5).numel(), 0);
  for (const double p : {-0.1, 1.1, std::nan("")}) EXPECT_THROW(with_step(ones, p), c10::Error) << p;
  EXPECT_THROW(with_step(ones.to(torch::kLong), 0.5), c10::Error);
  EXPECT_TRUE(torch::equal(with_step(ones.t().contiguous().t(), 0.75), mask)) << "whatever the strides";
}

// Inputs that are not batch first: a trial on some samples can't be cut from them.
TEST(KeyedDropout, InputsWithoutSamplesAreRefusedOverRanks) {
  const Model model = dropping(0.5);
  const torch::Tensor flat = torch::ones({12, 3});
  const StepScope alone({.step = 1, .samples = {0, 4}});
  EXPECT_EQ(model.forward({flat})[0].numel(), 36);
  const StepScope with_others({.step = 1, .samples = {0, 4}, .ranks = 2});
  EXPECT_THROW(model.forward({flat}), UsageError);
  EXPECT_NO_THROW(dropping(0.5).forward({torch::ones({4, 9})}));
}

// Also when the trial itself draws: what comes later in torch's own sequence stays.
TEST(KeyedDropout, TrialsLeaveTorchsGeneratorAlone) {
  struct RandomImpl : torch::nn::Module {
    torch::Tensor forward(const torch::Tensor& x) {
      const torch::Tensor kept = torch::dropout(x, 0.5, true);
      return kept + torch::rand_like(x);  // after the trial
    }
  };
  const Model model({layer<RandomImpl>("random")}, 0);
  const StepScope scope({.step = 1, .samples = {0, 4}});
  std::vector<torch::Tensor> outputs;
  for (int i = 0; i < 2; ++i) {  // with a trial, then without
    torch::manual_seed(4);
    outputs.push_back(model.forward({torch::ones({4, 9})})[0]);
  }
  EXPECT_TRUE(torch::equal(outputs[0], outputs[1]));
}

TEST(KeyedDropout, IsDifferentiableTwice) {
  torch::Tensor x = torch::linspace(1, 2, 32, torch::kDouble).view({4, 8}).requires_grad_();
  const StepScope scope({.step = 1, .samples = {0, 4}});
  const torch::Tensor y = torch::dropout(x, 0.5, true);
  const torch::Tensor mask = y.detach() / x.detach();
  const torch::Tensor first = torch::autograd::grad({y.pow(3).sum()}, {x}, {}, true, true)[0];
  EXPECT_TRUE(torch::allclose(first, 3 * mask.pow(3) * x.pow(2), 1e-12, 1e-12));
  const torch::Tensor second = torch::autograd::grad({first.sum()}, {x})[0];
  EXPECT_TRUE(torch::allclose(second, 6 * mask.pow(3) * x.detach(), 1e-12, 1e-12));
}

TEST(KeyedDropout, InPlaceIsTheSame) {
  const Model plain({layer<torch::nn::DropoutImpl>("drop", 0.5)}, 0);
  const Model in_place({layer<torch::nn::DropoutImpl>("drop", torch::nn::DropoutOptions(0.5).inplace(true))},
                       0);
  const StepScope scope({.step = 1, .samples = {0, 4}});
  torch::Tensor x = torch::rand({4, 8});
  const torch::Tensor expected = plain.forward({x})[0];
  const torch::Tensor got = in_place.forward({x})[0];
  EXPECT_TRUE(torch::equal(got, expected));
  EXPECT_TRUE(got.is_same(x));
}

// Moments of what comes out: mean 0 and variance 1 stay.
TEST(KeyedDropout, AlphaKeepsMeanAndVariance) {
  const Model model({layer<torch::nn::AlphaDropoutImpl>("alpha", 0.3)}, 0);
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(1);
  const StepScope scope({.step = 1, .samples = {0, 256}});
  const torch::Tensor out = model.forward({torch::randn({256, 256}, generator)})[0];
  EXPECT_NEAR(out.mean().item<double>(), 0, 0.03);
  EXPECT_NEAR(out.var().item<double>(), 1, 0.05);
}

TEST(KeyedDropout, OutsideOfAStepItIsTorchs) {
  const torch::Tensor x = torch::rand({16, 16});
  for (const bool after_a_step : {false, true}) {
    if (after_a_step) {
      const StepScope scope({.step = 1, .samples = {0, 16}});
      torch::dropout(x, 0.5, true);
    }
    torch::manual_seed(9);
    const torch::Tensor got = torch::nn::Dropout(0.25)(x);
    torch::manual_seed(9);
    EXPECT_TRUE(torch::equal(got, x * torch::empty_like(x).bernoulli_(0.75).div_(0.75)));
  }
  torch::nn::Dropout evaluated(0.5);
  evaluated->eval();
  const StepScope scope({.step = 1, .samples = {0, 16}});
  EXPECT_TRUE(torch::equal(evaluated(x), x));
}

}  // namespace
}  // namespace troika::test
