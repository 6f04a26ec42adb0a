// Recomputed layers: bit for bit the same without keeping anything, and where that can't be, refused by name.
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

constexpr int64_t kWidth = 6, kWords = 9, kSamples = 8;

/// Everything at once: a number input that is read twice, another one, whole numbers; dropout, running
/// statistics, a mask that it gives out, an output that is an input, and one that needs no gradient.
struct BlockImpl : torch::nn::Module {
  Tensors forward(const Tensors& in) {
    ++forwards;
    const torch::Tensor h = torch::tanh(first(in[0])) + words(in[2]) * in[1];
    const torch::Tensor kept = drop(torch::gelu(norm(h)));
    const torch::Tensor mask = h.detach() > 0;
    return {torch::sigmoid(second(kept) * mask + in[0].narrow(1, 0, 1)), mask, in[0], kept.exp().sum(1)};
  }
  torch::nn::Linear first{register_module("first", torch::nn::Linear(kFeatures, kWidth))};
  torch::nn::Linear second{register_module("second", torch::nn::Linear(kWidth, kWidth))};
  torch::nn::Embedding words{register_module("words", torch::nn::Embedding(kWords, kWidth))};
  torch::nn::BatchNorm1d norm{register_module("norm", torch::nn::BatchNorm1d(kWidth))};
  torch::nn::Dropout drop{register_module("drop", torch::nn::Dropout(0.4))};
  torch::Tensor unused{register_parameter("unused", torch::ones({2}))};
  static int forwards;
};
int BlockImpl::forwards = 0;

struct JoinAllImpl : torch::nn::Module {
  Tensors forward(const Tensors& in) {
    return {out(in[0] * in[1] + in[0]) + in[2].sum(1, true) + in[3].unsqueeze(1)};
  }
  torch::nn::Linear out{register_module("out", torch::nn::Linear(kWidth, 1))};
};

/// What came out, .grad of inputs and parameters, and buffers.
Tensors numbers_of(const Tensors& outputs, const Tensors& leaves, const Tensors& buffers) {
  Tensors numbers;
  for (const torch::Tensor& output : outputs) {
    numbers.push_back(output.detach().clone());
    numbers.push_back(torch::tensor(output.requires_grad() ? 1 : 0));
  }
  for (const torch::Tensor& leaf : leaves) {
    numbers.push_back(leaf.grad().defined() ? leaf.grad() : torch::tensor(-1));
  }
  for (const torch::Tensor& buffer : buffers) numbers.push_back(buffer.clone());
  return numbers;
}

Tensors block_inputs(bool needs_gradient) {
  const Tensors both = rows({0, kSamples}, 2).inputs;
  const torch::Tensor words = (both[0].select(1, 0).abs() * 7).to(torch::kLong).remainder(kWords);
  return {both[0].clone().requires_grad_(needs_gradient),
          both[1].narrow(1, 0, 1).clone().requires_grad_(needs_gradient), words};
}

std::vector<Layer> block_layers(bool again) {
  const Layer block = layer<BlockImpl>("block"), join = layer<JoinAllImpl>("join");
  return again ? std::vector<Layer>{recomputed(block), recomputed(join)} : std::vector<Layer>{block, join};
}

/// How a forward is called: within a step or not, with which context.
struct Setting {
  const char* name;
  bool step = false, log = false, bf16 = false, needs_gradient = true;
  int64_t group = 0;
};

Tensors run_block(bool again, const Setting& setting) {
  const Model model(block_layers(again), 5);
  const Tensors inputs = block_inputs(setting.needs_gradient);
  BatchNormLog log(model);
  Tensors outputs;
  torch::manual_seed(11);
  // Two micro-batches: both forwards, then both backwards, as a pipeline does it.
  for (const int64_t step : {1, 2}) {
    std::optional<StepScope> scope;
    if (setting.step) {
      scope.emplace(StepContext{.seed = 1,
                                .step = step,
                                .samples = {0, kSamples},
                                .batch_norm_group = setting.group,
                                .batch_norm = setting.log ? &log : nullptr});
    }
    const Bf16Scope precision(setting.bf16);
    outputs.push_back(without_bf16(model.forward(inputs))[0]);
  }
  torch::rand({3});  // whoever draws meanwhile
  for (const torch::Tensor& output : outputs) output.square().sum().backward();
  log.apply();
  Tensors leaves{inputs[0], inputs[1]}, buffers;
  for (const NamedTensor& named : model.parameters()) leaves.push_back(named.tensor);
  for (const NamedTensor& named : model.others()) buffers.push_back(named.tensor);
  Tensors numbers = numbers_of(outputs, leaves, buffers);
  numbers.push_back(torch::rand({3}));
  return numbers;
}

TEST(Recompute, IsBitForBitTheSame) {
  for (const Setting& setting :
       {Setting{"plain torch"}, Setting{"keyed noise", true}, Setting{"statistics written down", true, true},
        Setting{"groups", true, true, false, true, 2}, Setting{"autocast", true, false, true},
        Setting{"inputs without gradient", true, false, false, false}}) {
    SCOPED_TRACE(setting.name);
    BlockImpl::forwards = 0;
    const Tensors expected = run_block(false, setting);
    const int once = BlockImpl::forwards;
    BlockImpl::forwards = 0;
    EXPECT_TRUE(bitwise_equal(run_block(true, setting), expected));
    EXPECT_EQ(BlockImpl::forwards, once + 2) << "each of the two once more";
  }
}

/// A plain program, without a Model.
Tensors run_alone(bool again, const std::function<void(const Tensors& in, const Tensors& out)>& backward) {
  torch::manual_seed(2);
  BlockImpl block;
  const Tensors in = block_inputs(true);
  const auto forward = [&](const Tensors& inputs) { return block.forward(inputs); };
  const Tensors out = again ? recompute("block", block, forward, in) : forward(in);
  backward(in, out);
  Tensors leaves{in[0], in[1]};
  for (const torch::Tensor& p : block.parameters()) leaves.push_back(p);
  return numbers_of(out, leaves, block.buffers());
}

TEST(Recompute, IsForAnyProgram) {
  const auto backward = [](const Tensors&, const Tensors& out) { (out[0].sum() + out[3].sum()).backward(); };
  EXPECT_TRUE(bitwise_equal(run_alone(true, backward), run_alone(false, backward)));
}

TEST(Recompute, KeepsGradientsOfGradients) {
  const auto backward = [](const Tensors& in, const Tensors& out) {
    const Tensors first = torch::autograd::grad({out[0].sum()}, {in[0]}, {}, true, true);
    (first[0].square().sum() + out[3].sum()).backward();
  };
  EXPECT_TRUE(bitwise_equal(run_alone(true, backward), run_alone(false, backward)));
}

struct ForkImpl : torch::nn::Module {
  Tensors forward(const Tensors& in) {
    const torch::Tensor out = torch::tanh(linear(in[0]));
    return {out, out};
  }
  torch::nn::Linear linear{register_module("linear", torch::nn::Linear(kFeatures, kWidth))};
};

/// Reads what skipped three times, so that the order in which its gradients are added shows.
struct ReadThriceImpl : torch::nn::Module {
  Tensors forward(const Tensors& in) {
    return {torch::tanh(linear(in[0] * in[1]) + in[1].exp()) * torch::sigmoid(in[1])};
  }
  torch::nn::Linear linear{register_module("linear", torch::nn::Linear(kWidth, kWidth))};
};

TEST(Recompute, SkipsAndTiesAreTheSameBits) {
  const auto run = [](const std::vector<std::string>& patterns) {
    std::vector<Layer> layers{layer<ForkImpl>("fork").put("s"), layer<ReadThriceImpl>("a").get("s"),
                              layer<ReadThriceImpl>("b").get("s").tie("linear.weight", "a", "linear.weight"),
                              layer<ReadThriceImpl>("c").get("s")};
    const Model model(recompute_matching(layers, patterns, "patterns"), 1);
    const torch::Tensor x = rows({0, kSamples}).inputs[0].clone().requires_grad_();
    const Tensors out = model.forward({x});
    out[0].square().sum().backward();
    Tensors leaves{x};
    for (const NamedTensor& named : model.parameters()) leaves.push_back(named.tensor);
    for (const TiedUse& use : model.tied()) leaves.push_back(use.tensor);
    return numbers_of(out, leaves, {});
  };
  const Tensors expected = run({});
  for (const std::vector<std::string>& patterns :
       {std::vector<std::string>{"*"}, {"a"}, {"b", "c"}, {"fork", "c"}, {"f*k", "*b"}, {"?", "[e-g]ork"}}) {
    EXPECT_TRUE(bitwise_equal(run(patterns), expected)) << patterns[0];
  }
}

TEST(Recompute, BackwardInTwoPartsSplitsAsWithoutIt) {
  const auto run = [](bool again, SplitCounts& counts) {
    const Model model(block_layers(again), 5);
    const Tensors inputs = block_inputs(true);
    const StepScope scope({.seed = 1, .step = 1, .samples = {0, kSamples}});
    Tensors outputs = model.forward(inputs), leaves;
    for (const NamedTensor& named : model.parameters()) leaves.push_back(named.tensor);
    SplitBackward split({outputs[0]}, {inputs[0], inputs[1]}, leaves);
    Tensors numbers = split.input_part({torch::ones_like(outputs[0])});
    for (const torch::Tensor& leaf : leaves) EXPECT_FALSE(leaf.grad().defined());
    split.weight_part();
    counts = split.counts();
    const Tensors rest = numbers_of(outputs, leaves, {});
    numbers.insert(numbers.end(), rest.begin(), rest.end());
    return numbers;
  };
  SplitCounts plain, counts;
  const Tensors expected = run(false, plain);
  EXPECT_TRUE(bitwise_equal(run(true, counts), expected));
  EXPECT_EQ(counts, plain);
  EXPECT_GT(counts.in_weight_part, 0);
}

/// Bytes of what backward keeps that are no parameter's and no input's.
class KeptMemory {
 public:
  explicit KeptMemory(const Tensors& free) {
    for (const torch::Tensor& t : free) free_.insert(t.storage().unsafeGetStorageImpl());
  }
  void look(const torch::Tensor& tensor) { seen_.emplace_back(tensor.storage().getWeakStorageImpl()); }
  int64_t bytes() const {
    std::set<const void*> counted = free_;
    int64_t sum = 0;
    for (const auto& weak : seen_) {
      const auto storage = weak.lock();
      if (storage && counted.insert(storage.get()).second) sum += static_cast<int64_t>(storage->nbytes());
    }
    return sum;
  }

 private:
  std::set<const void*> free_;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> seen_;
};

/// Deep inside; every number on the way is looked at.
struct DeepImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    ++forwards;
    for (int i = 0; i < 10; ++i) {
      x = torch::tanh(linear(x));
      if (memory == nullptr) continue;
      memory->look(x);
      x.register_hook([](const torch::Tensor&) { during.push_back(memory->bytes()); });
    }
    return x;
  }
  torch::nn::Linear linear{register_module("linear", torch::nn::Linear(kFeatures, kFeatures))};
  static KeptMemory* memory;
  static std::vector<int64_t> during;  // backward
  static int forwards;
};
int DeepImpl::forwards = 0;
std::vector<int64_t> DeepImpl::during;
KeptMemory* DeepImpl::memory = nullptr;

TEST(Recompute, MemoryFalls) {
  const int64_t one = kSamples * kFeatures * static_cast<int64_t>(sizeof(float));
  for (const bool again : {false, true}) {
    std::vector<Layer> layers{layer<DeepImpl>("a"), layer<DeepImpl>("b"), layer<DeepImpl>("c")};
    if (again) layers = recompute_matching(layers, {"*"}, "patterns");
    const Model model(layers, 0);
    const torch::Tensor x = rows({0, kSamples}).inputs[0].clone();
    KeptMemory memory({x});
    DeepImpl::memory = &memory;
    torch::Tensor sum = model.forward({x})[0].sum();
    EXPECT_EQ(memory.bytes(), again ? 2 * one : 30 * one) << "two inputs of layers, or all there is";
    DeepImpl::during.clear();
    sum.backward();
    ASSERT_EQ(DeepImpl::during.size(), 30u);
    // A layer's numbers are there from its backward's begin, and go one by one.
    EXPECT_EQ(DeepImpl::during[1] - DeepImpl::during[9], 8 * one);
    EXPECT_EQ(DeepImpl::during[11] - DeepImpl::during[19], 8 * one);
    if (again) {
      EXPECT_EQ(*std::ranges::max_element(DeepImpl::during), 11 * one);
    }
    sum.reset();
    EXPECT_EQ(memory.bytes(), 0);
    DeepImpl::memory = nullptr;
  }
}

TEST(Recompute, WhatIsKeptAnywayIsNotComputedAgain) {
  int forwards = 0;
  const Layer linear{"linear", [&forwards] {
                       torch::nn::Linear inner(kFeatures, 2);
                       return LiveLayer{inner.ptr(), [&forwards, inner](const Tensors& in) mutable {
                                          ++forwards;
                                          return Tensors{inner(in[0])};
                                        }};
                     }};
  const Model model({recomputed(linear)}, 0);
  model.forward(rows({0, 4}).inputs)[0].sum().backward();
  EXPECT_EQ(forwards, 1);
  {
    const torch::NoGradGuard evaluation;
    model.forward(rows({0, 4}).inputs);
  }
  EXPECT_EQ(forwards, 2);
}

TEST(Recompute, WithinAnotherItDoesNothing) {
  int64_t outer = 0;
  const SavedTensorScope saved([&outer]() -> std::unique_ptr<torch::autograd::SavedVariableHooks> {
    ++outer;
    return nullptr;
  });
  const Layer twice = recomputed(recomputed(layer<DeepImpl>("a")));
  const Model model({twice}, 0);
  const Model plain({layer<DeepImpl>("a")}, 0);
  const torch::Tensor x = rows({0, 4}).inputs[0];
  DeepImpl::forwards = 0;
  model.forward({x})[0].sum().backward();
  EXPECT_EQ(DeepImpl::forwards, 2);
  EXPECT_EQ(outer, 0);
  plain.forward({x})[0].sum().backward();
  EXPECT_GT(outer, 0) << "and the hooks of who asks outside are theirs";
  EXPECT_TRUE(bitwise_equal({model.parameters()[0].tensor.grad()}, {plain.parameters()[0].tensor.grad()}));
}

/// A layer without parameters that does what it is told.

struct OuterImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor h = torch::tanh(linear(x));
    DeepImpl::memory->look(h);
    return recompute("inner", inner, [this](const Tensors& in) { return Tensors{inner.forward(in[0])}; },
                     {h})[0];
  }
  torch::nn::Linear linear{register_module("linear", torch::nn::Linear(kFeatures, kFeatures))};
  DeepImpl inner;
};

TEST(Recompute, WhatIsWithinAnotherKeepsNoInputs) {
  const Model model({recomputed(layer<OuterImpl>("outer"))}, 0);
  KeptMemory memory({});
  DeepImpl::memory = &memory;
  const torch::Tensor sum = model.forward(rows({0, 4}).inputs)[0].sum();
  EXPECT_EQ(memory.bytes(), 0);
  DeepImpl::memory = nullptr;
}

TEST(Recompute, IsOffForReferences) {
  const Model model({recomputed(layer<DeepImpl>("a"))}, 0);
  DeepImpl::forwards = 0;
  {
    const NoRecompute keeping;
    model.forward(rows({0, 4}).inputs)[0].sum().backward();
  }
  EXPECT_EQ(DeepImpl::forwards, 1);
  model.forward(rows({0, 4}).inputs)[0].sum().backward();
  EXPECT_EQ(DeepImpl::forwards, 3);
}

}  // namespace
}  // namespace troika::test
