// Skips in a list of layers: bit for bit a module of the same arithmetic, whole or cut in two, with noise and
// where something goes wrong.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/error_of.h"
#include "support/small_models.h"
#include "troika/parallel/generator_watch.h"
#include "troika/parallel/non_finite.h"
#include "troika/parallel/step_context.h"

namespace troika::test {
namespace {

constexpr int64_t kWidth = 6;

using Forward = std::function<Tensors(torch::nn::Linear&, const Tensors&)>;

/// A linear layer, called as `forward` says.
Layer linear(std::string name, int64_t in, int64_t out, Forward forward) {
  return {std::move(name), [in, out, forward] {
            torch::nn::Linear inner(in, out);
            return LiveLayer{inner.ptr(), [inner, forward](const Tensors& values) mutable {
                               return forward(inner, values);
                             }};
          }};
}

Layer no_parameters(std::string name, std::function<Tensors(const Tensors&)> forward) {
  return {std::move(name), [forward] {
            return LiveLayer{std::make_shared<torch::nn::IdentityImpl>(), forward};
          }};
}

Tensors tanh_twice(torch::nn::Linear& inner, const Tensors& in) {
  const torch::Tensor h = torch::tanh(inner(in[0]));
  return {h, h};
}
Tensors tanh_once(torch::nn::Linear& inner, const Tensors& in) { return {torch::tanh(inner(in[0]))}; }
Tensors join(torch::nn::Linear& inner, const Tensors& in) { return {inner(in[0] * in[1] + in[1])}; }

/// The parameters again, as leaves of their own: weight, bias, weight, bias ...
Tensors own_leaves(const Model& model) {
  Tensors leaves;
  for (const torch::Tensor& copy : copies_of(model.parameters())) leaves.push_back(copy.requires_grad_());
  return leaves;
}

/// Outputs, the gradients of all parameters and of the input.
Tensors all_numbers(const Tensors& outputs, const torch::Tensor& input, const Tensors& parameters) {
  torch::Tensor sum = torch::zeros({});
  Tensors numbers;
  for (const torch::Tensor& output : outputs) {
    if (output.requires_grad()) sum = sum + (output * output).sum();
    numbers.push_back(output.detach());
  }
  sum.backward();
  numbers.push_back(input.grad());
  for (const torch::Tensor& parameter : parameters) numbers.push_back(parameter.grad());
  return numbers;
}

Tensors tensors_of(const std::vector<NamedTensor>& named) {
  Tensors tensors;
  for (const NamedTensor& n : named) tensors.push_back(n.tensor);
  return tensors;
}

void expect_equal_to_plain(const std::vector<Layer>& layers,
                           const std::function<Tensors(const torch::Tensor&, const Tensors&)>& plain) {
  const Model model(layers, 3);
  const torch::Tensor input = rows({0, 9}).inputs[0];
  const torch::Tensor x = input.clone().requires_grad_(), y = input.clone().requires_grad_();
  const Tensors leaves = own_leaves(model);
  const Tensors got = all_numbers(model.forward({x}), x, tensors_of(model.parameters()));
  EXPECT_TRUE(bitwise_equal(got, all_numbers(plain(y, leaves), y, leaves)));
}

TEST(Skip, OverNoneToThreeLayersEqualsOneModule) {
  for (size_t between = 0; between <= 3; ++between) {
    SCOPED_TRACE(between);
    std::vector<Layer> layers{linear("first", kFeatures, kWidth, tanh_twice).put("s")};
    for (size_t i = 0; i < between; ++i) {
      layers.push_back(linear("mid" + std::to_string(i), kWidth, kWidth, tanh_once));
    }
    layers.push_back(linear("last", kWidth, 1, join).get("s"));
    expect_equal_to_plain(layers, [between](const torch::Tensor& x, const Tensors& w) {
      const torch::Tensor s = torch::tanh(torch::linear(x, w[0], w[1]));
      torch::Tensor h = s;
      for (size_t i = 1; i <= between; ++i) h = torch::tanh(torch::linear(h, w[2 * i], w[2 * i + 1]));
      return Tensors{torch::linear(h * s + s, w[2 * between + 2], w[2 * between + 3])};
    });
  }
}

// And one that is got twice by one layer; two skips cross each other.
TEST(Skip, OnePutMayBeGotSeveralTimes) {
  const auto join_three = [](torch::nn::Linear& inner, const Tensors& in) {
    return Tensors{inner(in.at(0) + in.at(1) * in.at(2) - in.at(3))};
  };
  expect_equal_to_plain(
      {linear("a", kFeatures, kWidth, tanh_twice).put("s"), linear("b", kWidth, kWidth, tanh_twice).put("t"),
       linear("c", kWidth, kWidth, join).get("s"),
       linear("d", kWidth, 2, join_three).get("s").get("t").get("s")},
      [](const torch::Tensor& x, const Tensors& w) {
        const torch::Tensor s = torch::tanh(torch::linear(x, w[0], w[1]));
        const torch::Tensor t = torch::tanh(torch::linear(s, w[2], w[3]));
        const torch::Tensor c = torch::linear(t * s + s, w[4], w[5]);
        return Tensors{torch::linear(c + s * t - s, w[6], w[7])};
      });
}

// The chain has three tensors, two of them without gradient; a mask and whole numbers skip, too.
TEST(Skip, ChainsOfSeveralTensorsMasksAndIntegers) {
  const auto open = [](torch::nn::Linear& inner, const Tensors& in) {
    const torch::Tensor h = inner(in[0]), mask = h.detach() > 0;
    return Tensors{h, mask, mask.sum(1), mask.logical_not(), h.exp()};
  };
  const auto middle = [](torch::nn::Linear& inner, const Tensors& in) {
    EXPECT_EQ(in.size(), 3u);
    return Tensors{inner(in[0] * in[1]), in[2]};
  };
  const auto close = [](torch::nn::Linear& inner, const Tensors& in) {
    EXPECT_EQ(in.size(), 4u);
    return Tensors{inner(in[0] * in[1].unsqueeze(1) + in[2] * in[3]), in[1]};
  };
  expect_equal_to_plain(
      {linear("open", kFeatures, kWidth, open).put("off").put("exp"),
       linear("middle", kWidth, kWidth, middle), linear("close", kWidth, 2, close).get("off").get("exp")},
      [](const torch::Tensor& x, const Tensors& w) {
        const torch::Tensor h = torch::linear(x, w[0], w[1]), mask = h.detach() > 0;
        const torch::Tensor off = mask.logical_not(), exp = h.exp(), count = mask.sum(1);
        const torch::Tensor m = torch::linear(h * mask, w[2], w[3]);
        return Tensors{torch::linear(m * count.unsqueeze(1) + off * exp, w[4], w[5]), count};
      });
}

TEST(Skip, IsDroppedAtItsLastUse) {
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> puts;
  const auto putting = [&puts](const Tensors& in) {
    const torch::Tensor put = in[0] + 1;
    puts.emplace_back(put.getIntrusivePtr());
    return Tensors{in[0] * 2, put};
  };
  const auto passing = [](const Tensors& in) { return Tensors{in[0] + 1}; };
  const auto adding = [](const Tensors& in) { return Tensors{in.at(0) + in.at(1)}; };
  const Model model({no_parameters("put", putting).put("s"), no_parameters("get", adding).get("s"),
                     no_parameters("last", adding).get("s"), no_parameters("after", passing)},
                    0);
  std::vector<bool> gone;
  model.forward({torch::ones({4})}, [&](size_t layer, const Tensors&) {
    if (layer == 2) gone.push_back(puts.back().expired());
    if (layer == 1) gone.push_back(puts.back().expired());
    return true;
  });
  EXPECT_EQ(gone, (std::vector<bool>{false, true}));
}

TEST(Skip, LayersThatDontKeepTheirWordAreNamed) {
  const auto same = [](const Tensors& in) { return in; };
  const Model lazy(
      {no_parameters("lazy", same).put("s").put("t"), no_parameters("last", same).get("s").get("t")}, 0);
  EXPECT_EQ(error_of([&] { lazy.forward({torch::ones({2})}); }),
            "layer \"lazy\", forward: it returned 1 tensor, but puts 2 (s, t)");
  const Model deaf({no_parameters("put",
                                  [](const Tensors& in) {
                                    return Tensors{in[0], in[0]};
                                  })
                        .put("s"),
                    layer<torch::nn::LinearImpl>("deaf", 3, 3).get("s")},
                   0);
  EXPECT_EQ(error_of([&] {
              deaf.forward({torch::ones({2, 3})});
            }),
            "layer \"deaf\", forward: it gets s, 2 tensors with those of the layer before it, but takes only "
            "1: let "
            "its forward take and return Tensors");
}

TEST(Skip, AModelChecksItsList) {
  const auto same = [](const Tensors& in) { return in; };
  EXPECT_EQ(error_of([&] {
              Model({no_parameters("a", same), no_parameters("b", same).get("s")}, 0);
            }),
            "layer \"b\" gets \"s\", which no earlier layer puts");
}

/// Drops in several places, in one of them time first, so that only a trial can tell the samples. Arithmetic
/// by element, so that a sample's numbers are the same in any batch.
std::vector<Layer> dropping_layers() {
  const auto drop = [](const torch::Tensor& x) { return torch::dropout(x, 0.5, true); };
  const auto open = [drop](const Tensors& in) {
    return Tensors{in[0] * 3, drop(in[0]), in[0].sum({1, 2}).gt(0)};
  };
  const auto turned = [drop](const Tensors& in) {
    return Tensors{drop(in[0].transpose(0, 1)).transpose(0, 1)};
  };
  const auto both = [drop](const Tensors& in) {
    return Tensors{drop((in.at(0) + in.at(1)).transpose(0, 1)).transpose(0, 1) + drop(in.at(1))};
  };
  const auto masked = [drop](const Tensors& in) {
    return Tensors{drop(in.at(0)) * in.at(1).view({-1, 1, 1}) + in.at(2)};
  };
  return {no_parameters("open", open).put("noise").put("mask"), no_parameters("turned", turned),
          no_parameters("both", both).get("noise"), no_parameters("masked", masked).get("mask").get("noise")};
}

/// Layers before `cut`, then the others, in two models.
struct Halves {
  Model first, second;
};
Halves cut_at(const std::vector<Layer>& layers, int cut) {
  // Names: what the first puts and the second gets.
  std::vector<std::string> across{"noise", "mask"};
  const std::vector<Layer> first(layers.begin(), layers.begin() + cut),
      second(layers.begin() + cut, layers.end());
  return {Model(first, 5, at::kFloat, {}, {{}, across}), Model(second, 5, at::kFloat, {}, {across, {}})};
}

TEST(Skip, NoiseIsTheSameInTwoModelsAsInOne) {
  constexpr int64_t kSamples = 8;
  const std::vector<Layer> layers = dropping_layers();
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(7);
  const torch::Tensor input =
      torch::rand({kSamples, kSamples, 16}, generator) - 0.5;  // as many steps of time
  const StepContext all{.seed = 2, .step = 3, .samples = {0, kSamples}, .ranks = 2};
  const auto run = [&](const Model& model, const Tensors& inputs, Range samples) {
    StepContext context = all;
    context.samples = samples;
    const StepScope scope(context);
    return model.forward(inputs);
  };
  const Tensors whole = run(Model(layers, 5), {input}, all.samples);
  EXPECT_GT(whole[0].eq(0).sum().item<int64_t>(), 0);
  for (int cut = 1; cut <= 3; ++cut) {
    SCOPED_TRACE(cut);
    for (const Range samples : {all.samples, Range{0, 5}, Range{5, 8}}) {
      const Halves halves = cut_at(layers, cut);  // new ones, so that each has its trial with these samples
      const torch::Tensor part = input.narrow(0, samples.begin, samples.size());
      const Tensors border = run(halves.first, {part}, samples);
      ASSERT_EQ(border.size(), 3u);
      const Tensors got = run(halves.second, border, samples);
      EXPECT_TRUE(bitwise_equal(got, {whole[0].narrow(0, samples.begin, samples.size())}));
    }
  }
}

TEST(Skip, GradientsCrossABorderAsTheyGoWithinAModel) {
  const std::vector<Layer> layers{linear("a", kFeatures, kWidth, tanh_twice).put("s"),
                                  linear("b", kWidth, kWidth, tanh_once),
                                  linear("c", kWidth, 1, join).get("s")};
  const Model whole(layers, 3);
  whole.forward({rows({0, 9}).inputs[0]})[0].sum().backward();
  for (int cut = 1; cut <= 2; ++cut) {
    const Model first({layers.begin(), layers.begin() + cut}, 3, at::kFloat, {}, {{}, {"s"}});
    const Model second({layers.begin() + cut, layers.end()}, 3, at::kFloat, {}, {{"s"}, {}});
    const Tensors sent = first.forward({rows({0, 9}).inputs[0]});
    Tensors received, gradients;
    for (const torch::Tensor& tensor : sent) received.push_back(tensor.detach().requires_grad_());
    second.forward(received)[0].sum().backward();
    for (const torch::Tensor& tensor : received) gradients.push_back(tensor.grad());
    torch::autograd::backward(sent, gradients);
    Tensors got, expected;
    for (const Model* piece : {&first, &second}) {
      for (const NamedTensor& parameter : piece->parameters()) got.push_back(parameter.tensor.grad());
    }
    for (const NamedTensor& parameter : whole.parameters()) expected.push_back(parameter.tensor.grad());
    EXPECT_TRUE(bitwise_equal(got, expected)) << cut;
  }
}

TEST(Skip, WhatIsNotFiniteIsFoundBehindIt) {
  const auto open = [](const Tensors& in) { return Tensors{in[0], in[0] - in[0]}; };
  const auto same = [](const Tensors& in) { return Tensors{in[0]}; };
  const auto divide = [](const Tensors& in) { return Tensors{in.at(0) / in.at(1)}; };
  const auto put_bad = [](const Tensors& in) { return Tensors{in[0], in[0] / 0}; };
  const auto ignore = [](const Tensors& in) { return Tensors{in.at(0)}; };
  const auto stop = [](const Tensors&) -> Tensors { throw Error("the layers behind it must not run"); };
  const Batch batch = rows({0, 4});
  const Model got({no_parameters("open", open).put("zero"), no_parameters("same", same),
                   no_parameters("divide", divide).get("zero"), no_parameters("stop", stop)},
                  0);
  EXPECT_EQ(describe(find_non_finite(got, batch), got), "the output of layer \"divide\"");
  const Model put({no_parameters("same", same), no_parameters("bad", put_bad).put("s"),
                   no_parameters("stop", stop).get("s")},
                  0);
  EXPECT_EQ(describe(find_non_finite(put, batch), put), "the output of layer \"bad\"");
  const Model good({no_parameters("open", open).put("zero"), no_parameters("last", ignore).get("zero")}, 0);
  EXPECT_EQ(describe(find_non_finite(good, batch), good), "the loss itself");
}

TEST(Skip, UnkeyedNoiseIsPutDownToItsLayer) {
  const auto open = [](const Tensors& in) { return Tensors{in[0], in[0] + 1}; };
  const auto random = [](const Tensors& in) {
    return Tensors{in.at(0) + in.at(1) * torch::rand_like(in.at(1))};
  };
  const auto add = [](const Tensors& in) { return Tensors{in.at(0) + in.at(1)}; };
  const Model calm({no_parameters("open", open).put("s"), no_parameters("add", add).get("s")}, 0);
  EXPECT_TRUE(bitwise_equal(forward_watched(calm, {torch::ones({3})}, 2), {torch::full({3}, 3.0f)}));
  const Model noisy({no_parameters("open", open).put("s"), no_parameters("random", random).get("s"),
                     no_parameters("add", add).get("s")},
                    0);
  EXPECT_EQ(
      error_of([&] { forward_watched(noisy, {torch::ones({3})}, 2); }).find("layer \"random\" draws random"),
      0u);
}

}  // namespace
}  // namespace troika::test
