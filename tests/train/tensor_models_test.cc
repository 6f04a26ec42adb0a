// The built-in models on tensor ranks: what each leaves whole, and that they are the whole models.
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include "parallel/tensor_parity.h"
#include "train/support/series_models.h"

namespace troika::test {
namespace {

// float32, through two layers of any kind and a BatchNorm's variance.
constexpr double kThroughModel = 1e-4;

std::vector<Layer> layers_of(const Kind& kind) {
  ModelRecipe recipe = small_recipe(kind);
  recipe.heads = 3;
  recipe.dropout = 0.3;
  return make_model(recipe, small_shape(kind));
}

/// Parameters that every rank has in whole, and layers that aren't split, with the reason.
std::string whole_in(const std::vector<Layer>& layers, int ranks) {
  const TensorPlan plan = plan_tensor(layers, ranks);
  std::string text;
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerSplit& split = plan.layers[i];
    if (!split.way) {
      text += fmt::format("{}: {}\n", split.layer, split.why_whole);
      continue;
    }
    std::vector<std::string> names;
    for (const auto& item : build_layer(layers[i], 0).module->named_parameters()) {
      const auto& cuts = split.way->cuts;
      if (std::ranges::none_of(cuts, [&](const CutTensor& cut) { return cut.name == item.key(); }))
        names.push_back(item.key());
    }
    text += fmt::format("{} by {}{}{}\n", split.layer, split.way->name, names.empty() ? "" : " but ",
                        fmt::join(names, ", "));
  }
  return text;
}

TEST(TensorModels, EveryModelIsTheWholeOne) {
  for (const Kind& kind : kinds()) {
    const std::vector<Layer> layers = layers_of(kind);
    expect_parity(fmt::format("{} with a window of {}", kind.type, kind.window), layers,
                  small_inputs(kind, 4), kThroughModel);
  }
}

constexpr const char* kEmbed = "embed by vocabulary\n";
constexpr const char* kBlocks =
    "block1 by heads but self_attn.out_proj.bias, linear2.bias, norm1.weight, norm1.bias, norm2.weight, "
    "norm2.bias\n"
    "block2 by heads but self_attn.out_proj.bias, linear2.bias, norm1.weight, norm1.bias, norm2.weight, "
    "norm2.bias\n"
    "norm: it needs whole rows\n";

/// Besides the head, which is the same for 2 and 3 ranks.
std::string expected(const Kind& kind) {
  if (kind.type == "mlp") return std::string(kEmbed) + "hidden1 by rows but bias\nhidden2 by columns\n";
  if (kind.type == "lstm") return std::string(kEmbed) + "lstm1 by hidden units\nlstm2 by hidden units\n";
  if (kind.type == "gru") return std::string(kEmbed) + "gru1 by hidden units\ngru2 by hidden units\n";
  if (kind.type == "tcn") {
    return std::string(kEmbed) +
           "block1 by channels but conv2.bias, downsample.bias\nblock2 by channels but conv2.bias\n";
  }
  if (kind.type == "cnn") return std::string(kEmbed) + "conv1 by channels\nconv2 by channels\n";
  if (kind.window == 0) return std::string("tokens by columns\n") + kBlocks;
  return std::string(kEmbed) + "tokens by columns\n" + kBlocks;
}

TEST(TensorModels, LeaveWholeOnlyWhatTheyMust) {
  for (const Kind& kind : kinds()) {
    const std::vector<Layer> layers = layers_of(kind);
    for (const int ranks : {2, 3})
      EXPECT_EQ(whole_in(layers, ranks), expected(kind) + "head by rows but bias\n") << name_of(kind);
  }
  EXPECT_EQ(plan_tensor(layers_of({"transformer", 0}), 4).layers[1].why_whole,
            "3 heads can't be split over 4 ranks");
}

TEST(TensorModels, AGptIsTheWholeOne) {
  ModelRecipe recipe = small_recipe({"gpt", 5});
  recipe.heads = 3;
  recipe.dropout = 0.3;
  const std::vector<Layer> layers = make_model(recipe, {0, {8}, 7, 5});
  const Tensors inputs{at::empty({4, 5, 0}, at::kDouble),
                       at::arange(20, at::kLong).mul(3).remainder(7).add(1).view({4, 5, 1})};
  expect_parity("gpt", layers, inputs, kThroughModel);
  for (const int ranks : {2, 3})
    EXPECT_EQ(whole_in(layers, ranks),
              std::string("embed by vocabulary\nposition by columns\n") + kBlocks + "head by columns\n");
}

TEST(TensorModels, BlocksMayShareOutTheTokensToo) {
  ModelRecipe recipe = small_recipe({"transformer", 5});
  recipe.width = 8;
  recipe.heads = 4;
  recipe.layers = 3;
  recipe.dropout = 0.3;
  const SplitChoices choices{{"block[12]", "heads and tokens"}};
  for (const Kind& kind : {Kind{"transformer", 0}, Kind{"transformer", 5}}) {
    const std::vector<Layer> layers = make_model(recipe, small_shape(kind));
    expect_parity(name_of(kind), layers, small_inputs(kind, 4), kThroughModel, choices);
    const size_t first = kind.window == 0 ? 1 : 2;
    const TensorPlan plan = plan_tensor(layers, 2, choices);
    const int64_t tokens = kind.window == 0 ? 6 : 5;
    EXPECT_EQ(plan.layers[first].out, (Spread{-2, tokens}));
    EXPECT_EQ(plan.layers[first + 1].in, (Spread{-2, tokens}));
    EXPECT_TRUE(plan.layers[first + 2].joins);
  }
  recipe.type = "gpt";
  const Tensors bytes{at::empty({4, 5, 0}, at::kDouble),
                      at::arange(20, at::kLong).mul(3).remainder(7).add(1).view({4, 5, 1})};
  expect_parity("gpt by tokens", make_model(recipe, {0, {8}, 7, 5}), bytes, kThroughModel, choices);
}

}  // namespace
}  // namespace troika::test
