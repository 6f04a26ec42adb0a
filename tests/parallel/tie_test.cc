// Tied parameters: one tensor with one value and the sum of its uses' gradients.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/error_of.h"
#include "support/small_models.h"
#include "troika/parallel/micro_batched_reference.h"

namespace troika::test {
namespace {

constexpr int64_t kWords = 11, kWidth = 6;

/// Reads whole numbers off the batch's first column.
Layer words() {
  return {"words", [] {
            return LiveLayer{
                std::make_shared<torch::nn::IdentityImpl>(), [](const Tensors& in) {
                  return Tensors{(in[0].select(1, 0).abs() * 7).to(torch::kLong).remainder(kWords)};
                }};
          }};
}

/// An embedding, something, and products with the embedding's rows; `uses` of them, the sum counts.
std::vector<Layer> word_model(bool tied, int uses = 1, bool sparse = false) {
  std::vector<Layer> layers{
      words(),
      layer<torch::nn::EmbeddingImpl>("embed", torch::nn::EmbeddingOptions(kWords, kWidth).sparse(sparse)),
      layer<torch::nn::LinearImpl>("mid", kWidth, kWidth)};
  for (int i = 0; i < uses; ++i) {
    if (i > 0) layers.push_back(layer<torch::nn::LinearImpl>("back" + std::to_string(i), kWords, kWidth));
    layers.push_back(layer<torch::nn::LinearImpl>("out" + std::to_string(i), kWidth, kWords));
    if (tied) layers.back().tie("weight", "embed", "weight");
  }
  return layers;
}

LossValue sum_of_squares(const Tensors& outputs, const Batch& batch) {
  return {outputs[0].square().sum(), static_cast<double>(batch.samples)};
}

at::Tensor parameter(const Model& model, const std::string& name) {
  for (const NamedTensor& p : model.parameters()) {
    if (p.name == name) return p.tensor;
  }
  throw std::out_of_range(name);
}

/// The same numbers without ties.
Model untied_like(const Model& tied, int uses, bool sparse = false) {
  Model model(word_model(false, uses, sparse), 1);
  const torch::NoGradGuard no_grad;
  for (const NamedTensor& p : tied.parameters()) parameter(model, p.name).copy_(p.tensor);
  for (const TiedUse& use : tied.tied()) parameter(model, use.name).copy_(use.tensor);
  return model;
}

TEST(Tie, IsOneTensor) {
  std::vector<std::string> seen;
  const Model model(word_model(true), 1, at::kFloat, [&](const std::vector<NamedTensor>& added) {
    for (const NamedTensor& p : added) seen.push_back(p.name);
  });
  const std::vector<std::string> expected{"embed.weight", "mid.weight", "mid.bias", "out0.bias"};
  EXPECT_EQ(seen, expected) << "a use is nobody's to move";
  ASSERT_EQ(model.tied().size(), 1u);
  const auto& [name, owner, tensor] = model.tied()[0];
  EXPECT_EQ(name, "out0.weight");
  EXPECT_EQ(owner, "embed.weight");
  EXPECT_TRUE(tensor.is_leaf() && tensor.requires_grad());
  EXPECT_EQ(tensor.data_ptr(), parameter(model, "embed.weight").data_ptr());
  EXPECT_FALSE(tensor.is_same(parameter(model, "embed.weight"))) << "its gradient is its own";
}

// Whoever takes the numbers elsewhere says so afterwards.
TEST(Tie, FollowsItsOwnerIntoAFlatBuffer) {
  Model model(word_model(true), 1);
  const torch::Tensor before = model.tied()[0].tensor.detach().clone();
  FlatLayout layout = layout_of(model.parameters(), at::kFloat);
  const torch::Tensor flat = zero_flat(layout, at::kFloat);
  for (size_t i = 0; i < layout.entries.size(); ++i)
    move_into(flat, layout.entries[i], model.parameters()[i].tensor);
  model.share_ties();
  EXPECT_TRUE(torch::equal(model.tied()[0].tensor, before));
  flat.fill_(0.25);
  EXPECT_TRUE(model.tied()[0].tensor.eq(0.25).all().item<bool>());
  model.forward(rows({0, 4}).inputs)[0].sum().backward();
  EXPECT_TRUE(model.tied()[0].tensor.grad().defined());
}

// Three uses, so that the order in which they are added shows in the last bits.
TEST(Tie, GradientIsTheOwnersAndThenTheUsesInOrder) {
  for (const bool sparse : {false, true}) {
    for (const int uses : {1, 3}) {
      const Model tied(word_model(true, uses, sparse), 1);
      const Model untied = untied_like(tied, uses, sparse);
      for (const Model* model : {&tied, &untied}) {
        for (int pass = 0; pass < 2; ++pass) {
          model->forward(rows({pass * 9, pass * 9 + 9}).inputs)[0].square().sum().backward();
        }
      }
      tied.add_tied_gradients();
      torch::Tensor expected = parameter(untied, "embed.weight").grad().to_dense().clone();
      for (int i = 0; i < uses; ++i) {
        expected = expected + parameter(untied, "out" + std::to_string(i) + ".weight").grad();
        EXPECT_FALSE(tied.tied()[static_cast<size_t>(i)].tensor.grad().defined());
      }
      EXPECT_TRUE(bitwise_equal({parameter(tied, "embed.weight").grad()}, {expected})) << uses << sparse;
      EXPECT_TRUE(
          bitwise_equal({parameter(tied, "mid.weight").grad()}, {parameter(untied, "mid.weight").grad()}));
    }
  }
}

TEST(Tie, AnOwnerThatTakesNoPartGetsItsUsesGradient) {
  const Model model(word_model(true, 2), 1);
  const torch::Tensor ones = torch::ones({3, kWidth});
  model.forward_layer(5, model.forward_layer(4, model.forward_layer(3, {ones})))[0].square().sum().backward();
  const Tensors uses{model.tied()[0].tensor.grad().clone(), model.tied()[1].tensor.grad().clone()};
  model.add_tied_gradients();
  EXPECT_TRUE(bitwise_equal({parameter(model, "embed.weight").grad()}, {uses[0] + uses[1]}));
}

/// Plain SGD by hand on untied copies: per rank the owner's gradient, then the uses'; then ranks in order.
struct ByHand {
  explicit ByHand(const Model& start) : tied(start) {}
  const Model& tied;

  double step(const std::vector<std::vector<Batch>>& pieces, double rate) {
    const Model untied = untied_like(tied, 2);
    std::vector<at::Tensor> sums(tied.parameters().size());
    double loss = 0, weight = 0;
    for (const auto& rank : pieces) {
      for (const NamedTensor& p : untied.parameters()) p.tensor.mutable_grad().reset();
      double loss_of_rank = 0;
      for (const Batch& batch : rank) {
        const torch::Tensor sum = untied.forward(batch.inputs)[0].square().sum();
        loss_of_rank += sum.item<double>();
        weight += static_cast<double>(batch.samples);
        sum.backward();
      }
      loss += loss_of_rank;
      for (size_t i = 0; i < sums.size(); ++i) {
        const std::string& name = tied.parameters()[i].name;
        torch::Tensor gradient = parameter(untied, name).grad();
        for (const TiedUse& use : tied.tied()) {
          if (use.owner == name) gradient = gradient + parameter(untied, use.name).grad();
        }
        sums[i] = sums[i].defined() ? sums[i] + gradient : gradient;
      }
    }
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < sums.size(); ++i) {
      tied.parameters()[i].tensor.sub_(sums[i] / weight * rate);  // both exact: powers of two
    }
    return loss / weight;
  }
};

ReplicaOptions plain_sgd(double rate) {
  ReplicaOptions options;
  options.optimizer.kind = Optimizer::Kind::sgd;
  options.optimizer.learning_rate = rate;
  options.seed = 1;
  return options;
}

TEST(Tie, TheReferenceTrainsIt) {
  const double rate = 1.0 / 64;
  const auto pieces = pieces_of(16, 2, 2);
  MicroBatchedReference reference(word_model(true, 2), plain_sgd(rate), 2);
  const Model model(word_model(true, 2), 1);
  ByHand by_hand(model);
  const auto expect_same_step = [&] {
    const StepResult result = reference.step(pieces, sum_of_squares);
    EXPECT_EQ(result.loss, by_hand.step(pieces, rate));
    EXPECT_TRUE(bitwise_equal(copies_of(reference.parameters()), copies_of(model.parameters())));
  };
  for (int step = 0; step < 3; ++step) expect_same_step();
  // What a broken step leaves in the uses is not the next one's.
  int losses = 0;
  EXPECT_THROW(reference.step(pieces,
                              [&](const Tensors& outputs, const Batch& batch) {
                                if (++losses == 2) throw Error("halfway");
                                return sum_of_squares(outputs, batch);
                              }),
               Error);
  expect_same_step();
  // New weights reach the uses.
  std::vector<at::Tensor> weights;
  for (const NamedTensor& p : model.parameters()) weights.push_back(torch::full_like(p.tensor, 0.125));
  reference.set_weights(weights);
  const torch::NoGradGuard no_grad;
  for (const NamedTensor& p : model.parameters()) p.tensor.fill_(0.125);
  const torch::AutoGradMode with_gradients(true);
  expect_same_step();
}

// Its owner's stage will send the numbers.
TEST(Tie, WithAnOwnerElsewhereHasNumbersAndGradientOfItsOwn) {
  std::vector<Layer> layers = word_model(true);
  const Model model({layers.back()}, 1);
  Model alone({word_model(false).back()}, 1);
  EXPECT_TRUE(torch::equal(model.tied()[0].tensor, parameter(alone, "out0.weight")));
  model.forward({torch::ones({2, kWidth})})[0].sum().backward();
  model.add_tied_gradients();
  EXPECT_TRUE(model.tied()[0].tensor.grad().defined());
}

struct FrozenImpl : torch::nn::Module {
  FrozenImpl() { register_parameter("weight", torch::ones({kWords, kWidth}), false); }
  torch::Tensor forward(const torch::Tensor& x) { return x; }
};

struct DoubleNameImpl : torch::nn::Module {
  DoubleNameImpl() {
    inner = register_module("inner", torch::nn::Linear(kWidth, kWords));
    register_module("again", inner);
  }
  torch::Tensor forward(const torch::Tensor& x) { return inner(x); }
  torch::nn::Linear inner{nullptr};
};

TEST(Tie, AParameterOfTwoNamesIsTiedOnce) {
  const Layer embed = layer<torch::nn::EmbeddingImpl>("embed", kWords, kWidth);
  const Model model({embed, layer<DoubleNameImpl>("out").tie("again.weight", "embed", "weight")}, 1);
  EXPECT_EQ(model.parameters().size(), 2u) << "embed.weight and one bias";
}

TEST(Tie, RefusesWhatCantBeOneTensor) {
  const auto refused = [](const std::vector<Layer>& layers) { return error_of([&] { Model(layers, 1); }); };
  const Layer embed = layer<torch::nn::EmbeddingImpl>("embed", kWords, kWidth);
  const auto linear = [](int64_t in, int64_t out) { return layer<torch::nn::LinearImpl>("out", in, out); };
  EXPECT_EQ(refused({embed, linear(kWidth, 9).tie("weight", "embed", "weight")}),
            "\"out.weight\" is tied to \"embed.weight\", but the one is Float [9, 6] and the other Float "
            "[11, 6]: one "
            "tensor can't be both");
  EXPECT_EQ(refused({embed, linear(kWidth, kWords).tie("wieght", "embed", "weight")}),
            "layer \"out\" ties its parameter \"wieght\", which it doesn't have (did you mean \"weight\"?)");
  EXPECT_EQ(refused({embed, linear(kWidth, kWords).tie("weight", "embed", "wight")}),
            "\"out.weight\" is tied to \"embed.wight\", and no earlier layer trains a parameter of that name "
            "(did you "
            "mean \"embed.weight\"?)");
  EXPECT_EQ(
      refused({layer<FrozenImpl>("embed"), linear(kWidth, kWords).tie("weight", "embed", "weight")}),
      "\"out.weight\" is tied to \"embed.weight\", and no earlier layer trains a parameter of that name");
  EXPECT_EQ(refused({embed, layer<FrozenImpl>("out").tie("weight", "embed", "weight")}),
            "layer \"out\" ties its parameter \"weight\", which isn't trained");
  EXPECT_EQ(refused({embed, layer<DoubleNameImpl>("out")
                                .tie("inner.weight", "embed", "weight")
                                .tie("again.weight", "embed", "weight")}),
            "\"out.again.weight\" is tied already, under another name");
  EXPECT_THROW(
      MicroBatchedReference({linear(kWidth, kWords).tie("weight", "embed", "weight")}, plain_sgd(1), 1),
      UsageError)
      << "a whole list has its owners";
}

}  // namespace
}  // namespace troika::test
