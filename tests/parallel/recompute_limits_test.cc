// What a recomputed layer may not do, and what doing it twice must not change.
#include "troika/parallel/recompute.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/error_of.h"
#include "support/small_models.h"
#include "troika/base/error.h"
#include "troika/parallel/batch_norm.h"
#include "troika/parallel/bf16.h"
#include "troika/parallel/saved_tensors.h"
#include "troika/parallel/split_backward.h"
#include "troika/parallel/step_context.h"

namespace troika::test {
namespace {

constexpr int64_t kWidth = 6, kSamples = 8;

Layer doing(std::function<Tensors(const Tensors&)> forward) {
  return recomputed({"naughty", [forward] {
                       return LiveLayer{std::make_shared<torch::nn::IdentityImpl>(), forward};
                     }});
}

std::string message_of(const std::vector<Layer>& layers, const std::function<void(const Model&)>& between) {
  const Model model(layers, 0);
  return error_of([&] {
    const torch::Tensor out = model.forward({rows({0, kSamples}).inputs[0].clone()})[0];
    if (between) between(model);
    out.sum().backward();
  });
}

TEST(Recompute, LayersThatCannotRunTwiceAreNamed) {
  const Layer in = layer<torch::nn::LinearImpl>("in", kFeatures, kWidth);
  const auto relu = doing([](const Tensors& x) { return Tensors{x[0].relu_()}; });
  EXPECT_NE(message_of({in, relu}, {}).find("layer \"naughty\" writes into its input 0 in place"),
            std::string::npos);

  int calls = 0;
  const auto changing =
      doing([&calls](const Tensors& x) { return Tensors{++calls == 1 ? x[0].exp() : x[0].exp().tanh()}; });
  EXPECT_NE(message_of({in, changing}, {}).find("layer \"naughty\" doesn't compute the same a second time"),
            std::string::npos);
  calls = 0;
  const auto smaller = doing(
      [&calls](const Tensors& x) { return Tensors{++calls == 1 ? x[0].exp() : x[0].narrow(1, 0, 2).exp()}; });
  EXPECT_NE(message_of({in, smaller}, {}).find("doesn't compute the same a second time"), std::string::npos);
  calls = 0;
  const auto less =
      doing([&calls](const Tensors& x) { return Tensors{++calls == 1 ? x[0].exp() : x[0] + 1}; });
  EXPECT_NE(message_of({in, less}, {}).find("doesn't compute the same a second time"), std::string::npos);

  const auto inner_write = doing([](const Tensors& x) {
    const torch::Tensor y = x[0].exp();
    torch::Tensor z = y * 2;
    y.add_(1);  // exp needs it
    return Tensors{z};
  });
  EXPECT_NE(message_of({in, inner_write}, {}).find("layer \"naughty\": something that its backward needs"),
            std::string::npos);

  const auto within = doing([](const Tensors& x) {
    const torch::Tensor leaf = x[0].detach().requires_grad_();
    return Tensors{x[0] * torch::autograd::grad({leaf.exp().sum()}, {leaf})[0]};
  });
  EXPECT_NE(message_of({in, within}, {}).find("layer \"naughty\" runs backward within its forward"),
            std::string::npos);
}

/// What forward computes depends on how often it has run.
struct CountingImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    count.add_(1);
    return torch::tanh(x * w * count.clone()).exp();
  }
  torch::Tensor count{register_buffer("count", torch::zeros({1}))};
  torch::Tensor w{register_parameter("w", torch::ones({1}))};
};

TEST(Recompute, BuffersAreThoseOfTheFirstForward) {
  const auto run = [](bool again) {
    const Layer counting = layer<CountingImpl>("counting");
    const Model model({again ? recomputed(counting) : counting}, 0);
    torch::Tensor sum = torch::zeros({});
    for (int i = 0; i < 3; ++i) sum = sum + model.forward(rows({0, 4}).inputs)[0].sum();
    sum.backward();
    return Tensors{sum.detach(), model.parameters()[0].tensor.grad(), model.others()[0].tensor};
  };
  EXPECT_TRUE(bitwise_equal(run(true), run(false)));
}

/// Makes something in between, which is what has to be computed again.
struct TwiceImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return linear(linear(x).tanh()); }
  torch::nn::Linear linear{register_module("linear", torch::nn::Linear(kFeatures, kFeatures))};
};

TEST(Recompute, WhatChangesBeforeBackwardIsSeen) {
  const Layer in = layer<torch::nn::LinearImpl>("in", kFeatures, kFeatures);
  const Layer deep = recomputed(layer<TwiceImpl>("deep"));
  EXPECT_EQ(message_of({in, deep}, {}), "no error") << "by itself it is fine";
  const auto weights = [](const Model& model) {
    const torch::NoGradGuard no_grad;
    model.parameters().back().tensor.add_(1);
  };
  EXPECT_NE(message_of({in, deep}, weights).find("layer \"deep\": its weights have changed"),
            std::string::npos);
  const auto elsewhere = [](const Model& model) {
    model.parameters().back().tensor.set_data(model.parameters().back().tensor.detach().clone());
  };
  EXPECT_NE(message_of({in, deep}, elsewhere).find("layer \"deep\": its weights have changed"),
            std::string::npos);
  const Model model({deep}, 0);
  const torch::Tensor x = rows({0, 4}).inputs[0].clone();
  const torch::Tensor out = model.forward({x})[0].sum();
  x.add_(1);
  EXPECT_NE(error_of([&] { out.backward(); }).find("layer \"deep\" got its input 0, which"),
            std::string::npos);
}

TEST(Recompute, PatternsWithoutALayerAreNamedWithTheNearest) {
  const std::vector<Layer> layers{layer<torch::nn::IdentityImpl>("embed"),
                                  layer<torch::nn::IdentityImpl>("block.0"),
                                  layer<torch::nn::IdentityImpl>("block.1")};
  EXPECT_EQ(error_of([&] {
              recompute_matching(layers, {"block.*", "embd"}, "recipe.toml:3");
            }),
            "recipe.toml:3: no layer is called \"embd\" (did you mean \"embed\"?); there are embed, block.0, "
            "block.1");
  EXPECT_NE(error_of([&] { recompute_matching(layers, {"blo*x"}, "x"); }).find("\"blo*x\""),
            std::string::npos);
  EXPECT_EQ(recompute_matching(layers, {"*.1", "**", "embed*"}, "x").size(), 3u);
}

}  // namespace
}  // namespace troika::test
