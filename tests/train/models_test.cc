#include "troika/train/models/registry.h"

#include <ATen/ops/equal.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/utils.h>

#include "support/error_of.h"
#include "train/support/naive_models.h"
#include "troika/base/random.h"

namespace troika::test {
namespace {

double largest(const at::Tensor& tensor) { return tensor.detach().abs().max().item<double>(); }

/// "layer: name 3x4 ..." a line for each layer.
std::string table_of(const std::vector<NamedTensor>& tensors) {
  std::string table;
  std::string layer;
  for (const NamedTensor& named : tensors) {
    const size_t dot = named.name.find('.');
    if (named.name.substr(0, dot) != layer) {
      layer = named.name.substr(0, dot);
      table += "\n" + layer + ":";
    }
    table += fmt::format(" {} {}", named.name.substr(dot + 1), fmt::join(named.tensor.sizes(), "x"));
  }
  return table;
}

constexpr const char* kEmbed = "\nembed: category0.weight 4x2 category1.weight 7x4";
constexpr const char* kHead = "\nhead: weight 2x6 bias 2";
constexpr const char* kBlocks =
    "\nblock1: self_attn.in_proj_weight 18x6 self_attn.in_proj_bias 18 self_attn.out_proj.weight 6x6 "
    "self_attn.out_proj.bias 6 linear1.weight 24x6 linear1.bias 24 linear2.weight 6x24 linear2.bias 6 "
    "norm1.weight 6 norm1.bias 6 norm2.weight 6 norm2.bias 6"
    "\nblock2: self_attn.in_proj_weight 18x6 self_attn.in_proj_bias 18 self_attn.out_proj.weight 6x6 "
    "self_attn.out_proj.bias 6 linear1.weight 24x6 linear1.bias 24 linear2.weight 6x24 linear2.bias 6 "
    "norm1.weight 6 norm1.bias 6 norm2.weight 6 norm2.bias 6"
    "\nnorm: weight 6 bias 6";

struct Golden {
  Kind kind;
  std::string table;
  int64_t parameters;
  std::string others;
};

const std::vector<Golden>& golden() {
  static const std::vector<Golden> all = {
      {{"mlp", 0},
       std::string(kEmbed) + "\nhidden1: weight 6x9 bias 6\nhidden2: weight 6x6 bias 6" + kHead,
       152,
       ""},
      {{"mlp", 5},
       std::string(kEmbed) + "\nhidden1: weight 6x45 bias 6\nhidden2: weight 6x6 bias 6" + kHead,
       368,
       ""},
      {{"lstm", 5},
       std::string(kEmbed) +
           "\nlstm1: weight_ih_l0 24x9 weight_hh_l0 24x6 bias_ih_l0 24 bias_hh_l0 24"
           "\nlstm2: weight_ih_l0 24x6 weight_hh_l0 24x6 bias_ih_l0 24 bias_hh_l0 24" +
           kHead,
       794,
       ""},
      {{"gru", 5},
       std::string(kEmbed) +
           "\ngru1: weight_ih_l0 18x9 weight_hh_l0 18x6 bias_ih_l0 18 bias_hh_l0 18"
           "\ngru2: weight_ih_l0 18x6 weight_hh_l0 18x6 bias_ih_l0 18 bias_hh_l0 18" +
           kHead,
       608,
       ""},
      {{"tcn", 5},
       std::string(kEmbed) +
           "\nblock1: conv1.weight 6x9x3 conv1.bias 6 conv2.weight 6x6x3 conv2.bias 6 downsample.weight "
           "6x9x1 "
           "downsample.bias 6"
           "\nblock2: conv1.weight 6x6x3 conv1.bias 6 conv2.weight 6x6x3 conv2.bias 6" +
           kHead,
       620,
       ""},
      {{"cnn", 5},
       std::string(kEmbed) +
           "\nconv1: conv.weight 6x9x3 norm.weight 6 norm.bias 6"
           "\nconv2: conv.weight 6x6x3 norm.weight 6 norm.bias 6" +
           kHead,
       344,
       "\nconv1: norm.running_mean 6 norm.running_var 6 norm.num_batches_tracked "
       "\nconv2: norm.running_mean 6 norm.running_var 6 norm.num_batches_tracked "},
      {{"transformer", 0},
       std::string("\ntokens: leading 1x6 weight 3x6 bias 3x6 category0.weight 4x6 category1.weight 7x6") +
           kBlocks + kHead,
       1154,
       ""},
      {{"transformer", 5},
       std::string(kEmbed) + "\ntokens: linear.weight 6x9 linear.bias 6 position.weight 5x6" + kBlocks +
           kHead,
       1172,
       ""},
  };
  return all;
}

TEST(Models, NamesAndShapesAreThoseOfTorchsModules) {
  for (const auto& [kind, table, parameters, others] : golden()) {
    const Model model = small_model(kind);
    EXPECT_EQ(table_of(model.parameters()), table) << name_of(kind);
    EXPECT_EQ(table_of(model.others()), others) << name_of(kind);
    int64_t count = 0;
    for (const NamedTensor& p : model.parameters()) count += p.tensor.numel();
    EXPECT_EQ(count, parameters) << name_of(kind);
    const at::Tensor out = model.forward(small_inputs(kind, 3)).at(0);
    EXPECT_EQ(out.sizes().vec(), (std::vector<int64_t>{3, 2})) << name_of(kind);
  }
}

TEST(Models, EveryNumberIsThatOfTheirDefinition) {
  for (Kind kind : kinds()) {
    for (const int64_t window : {kind.window, std::min<int64_t>(kind.window, 1), 4 * kind.window}) {
      for (const int64_t layers : {1, 2, 3}) {
        kind.window = window;
        ModelRecipe recipe = small_recipe(kind);
        recipe.layers = layers;
        const Model model = small_model(kind, recipe);
        for (const auto& [name, layer] : model.layers()) layer.module->eval();
        const Tensors in = small_inputs(kind, 3);
        const at::Tensor out = model.forward(in).at(0);
        const NaiveModel naive(model, recipe, small_shape(kind));
        for (int64_t sample = 0; sample < 3; ++sample) {
          Rows floats;
          std::vector<std::vector<int64_t>> codes;
          for (int64_t t = 0; t < std::max<int64_t>(1, window); ++t) {
            const at::Tensor x = in[0].view({3, -1, 3})[sample][t];
            const at::Tensor c = in[1].view({3, -1, 2})[sample][t];
            floats.emplace_back(x.data_ptr<double>(), x.data_ptr<double>() + x.numel());
            codes.emplace_back(c.data_ptr<int64_t>(), c.data_ptr<int64_t>() + c.numel());
          }
          const Row expected = naive(floats, codes);
          for (int64_t o = 0; o < 2; ++o) {
            EXPECT_NEAR(out[sample][o].item<double>(), expected[static_cast<size_t>(o)], 1e-12)
                << name_of(kind) << ", " << layers << " layers, sample " << sample << ", output " << o;
          }
        }
      }
    }
  }
}

TEST(Models, GradientsAreFiniteDifferences) {
  for (const Kind& kind : kinds()) {
    const Model model = small_model(kind);
    const Tensors in = small_inputs(kind, 4);
    const at::Tensor direction = waves({4, 2}, 0.9);
    const auto loss = [&] { return (model.forward(in).at(0) * direction).sum(); };
    loss().backward();
    const at::NoGradGuard no_grad;
    for (const NamedTensor& p : model.parameters()) {
      ASSERT_TRUE(p.tensor.grad().defined()) << name_of(kind) << ": " << p.name;
      const at::Tensor flat = p.tensor.detach().view(-1);
      const at::Tensor gradient = p.tensor.grad().reshape(-1);
      const double scale = std::max(1e-3, largest(gradient));
      for (int64_t i = 0; i < flat.numel(); i += std::max<int64_t>(1, flat.numel() / 3)) {
        constexpr double kStep = 1e-5;
        const double before = flat[i].item<double>();
        flat[i].fill_(before + kStep);
        const double above = loss().item<double>();
        flat[i].fill_(before - kStep);
        const double below = loss().item<double>();
        flat[i].fill_(before);
        EXPECT_NEAR(gradient[i].item<double>(), (above - below) / (2 * kStep), 1e-6 * scale)
            << name_of(kind) << ": " << p.name << "[" << i << "]";
      }
    }
  }
}

TEST(Models, ASampleDoesNotDependOnTheOthers) {
  for (const Kind& kind : kinds()) {
    const Model model = small_model(kind);
    for (const auto& [name, layer] : model.layers()) layer.module->eval();
    const Tensors in = small_inputs(kind, 9);
    const at::Tensor together = model.forward(in).at(0);
    for (int64_t i = 0; i < 9; ++i) {
      const at::Tensor alone = model.forward({in[0].narrow(0, i, 1), in[1].narrow(0, i, 1)}).at(0);
      EXPECT_LT(largest(alone - together.narrow(0, i, 1)), 1e-12) << name_of(kind) << ", sample " << i;
    }
  }
}

// What a pipeline does with a model: each stage makes its layers alone, from the same list.
TEST(Models, LayersMadeAloneAreTheWhole) {
  for (const Kind& kind : kinds()) {
    const std::vector<Layer> layers = make_model(small_recipe(kind), small_shape(kind));
    const Model whole(layers, 3, at::kDouble);
    const at::Tensor expected = whole.forward(small_inputs(kind, 3)).at(0);
    Tensors values = small_inputs(kind, 3);
    std::vector<at::Tensor> parameters;
    for (const Layer& layer : layers) {
      const Model alone({layer}, 3, at::kDouble);
      values = alone.forward(values);
      for (const NamedTensor& p : alone.parameters()) parameters.push_back(p.tensor);
    }
    EXPECT_TRUE(at::equal(values.at(0), expected)) << name_of(kind);
    ASSERT_EQ(parameters.size(), whole.parameters().size());
    for (size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_TRUE(at::equal(parameters[i], whole.parameters()[i].tensor)) << whole.parameters()[i].name;
    }
  }
}

TEST(Models, ATcnSeesNoLaterRow) {
  const Kind kind{"tcn", 12};
  const Model model = small_model(kind);
  const Tensors in = small_inputs(kind, 2);
  const auto blocks = [&](const at::Tensor& floats) {
    Tensors values = model.forward_layer(0, {floats, in[1]});
    for (size_t i = 1; i + 1 < model.layers().size(); ++i) values = model.forward_layer(i, values);
    return values.at(0);  // [n, width, window]
  };
  const at::Tensor before = blocks(in[0]);
  for (int64_t row = 0; row < kind.window; ++row) {
    at::Tensor changed = in[0].clone();
    changed.select(1, row).add_(1);
    const at::Tensor difference = (blocks(changed) - before).abs();
    EXPECT_EQ(row == 0 ? 0 : largest(difference.narrow(2, 0, row)), 0) << "row " << row;
    EXPECT_GT(largest(difference.select(2, row)), 0) << "row " << row;
  }
}

TEST(Models, BeginWithTorchsNumbers) {
  const Kind kind{"lstm", 5};
  const auto seeded = [](const std::string& layer) { torch::manual_seed(hash64(layer, 3)); };
  const auto expect_equal = [](const Model& model, const std::string& layer,
                               const torch::nn::Module& module) {
    for (const auto& item : module.named_parameters()) {
      const std::string name = layer + "." + item.key();
      const auto found =
          std::ranges::find_if(model.parameters(), [&](const auto& p) { return p.name == name; });
      ASSERT_NE(found, model.parameters().end()) << name;
      EXPECT_TRUE(at::equal(found->tensor, item.value())) << name;
    }
  };
  const Model lstm(make_model(small_recipe(kind), small_shape(kind)), 3);
  seeded("lstm1");
  expect_equal(lstm, "lstm1", *torch::nn::LSTM(torch::nn::LSTMOptions(9, 6)));
  const Model gru(make_model(small_recipe({"gru", 5}), small_shape(kind)), 3);
  seeded("gru2");
  expect_equal(gru, "gru2", *torch::nn::GRU(torch::nn::GRUOptions(6, 6)));
  const Model transformer(make_model(small_recipe({"transformer", 5}), small_shape(kind)), 3);
  seeded("block1");
  expect_equal(transformer, "block1",
               *torch::nn::TransformerEncoderLayer(
                   torch::nn::TransformerEncoderLayerOptions(6, 2).dim_feedforward(24)));
}

// Which layers drop numbers in training, by layer; none does in evaluation.
TEST(Models, DropoutActsWhereTorchsModulesHaveIt) {
  const std::map<std::string, std::vector<std::string>> expected = {
      {"mlp", {"hidden1", "hidden2"}}, {"lstm", {"lstm1"}},         {"gru", {"gru1"}},
      {"tcn", {"block1", "block2"}},   {"cnn", {"conv1", "conv2"}}, {"transformer", {"block1", "block2"}}};
  for (const Kind& kind : kinds()) {
    ModelRecipe recipe = small_recipe(kind);
    recipe.dropout = 0.5;
    const Model dropping = small_model(kind, recipe);
    const Model plain = small_model(kind);
    std::vector<std::string> layers;
    Tensors values = small_inputs(kind, 16);
    for (size_t i = 0; i < plain.layers().size(); ++i) {
      const Tensors next = plain.forward_layer(i, values);
      if (!at::equal(dropping.forward_layer(i, values).at(0), next.at(0)))
        layers.push_back(plain.layers()[i].first);
      values = next;
    }
    EXPECT_EQ(layers, expected.at(kind.type)) << name_of(kind);
    for (const Model* model : {&dropping, &plain}) {
      for (const auto& [name, layer] : model->layers()) layer.module->eval();
    }
    const Tensors in = small_inputs(kind, 4);
    EXPECT_TRUE(at::equal(dropping.forward(in).at(0), plain.forward(in).at(0))) << name_of(kind);
  }
}

TEST(Models, WhatCanNotBeIsSaid) {
  const auto error = [](const std::string& type, int64_t window, auto... changes) {
    ModelRecipe recipe = small_recipe({type, window});
    ModelShape shape = small_shape({type, window});
    (changes(recipe, shape), ...);
    return error_of([&] { make_model(recipe, shape); });
  };
  for (const char* type : {"lstm", "gru", "tcn", "cnn"}) {
    EXPECT_EQ(error(type, 0),
              fmt::format("model.type \"{}\" reads windows of a series: set data.window to the rows "
                          "that a sample has, and data.time or data.series to what orders them; a "
                          "table is for \"mlp\" and \"transformer\"",
                          type));
    EXPECT_EQ(
        error(type, 5, [](ModelRecipe& recipe, ModelShape&) { recipe.layers = 0; }),
        fmt::format("model.type \"{}\" has at least 1 layer, and model.layers is 0 (\"mlp\" may have none)",
                    type));
  }
  const auto without_layers = [](ModelRecipe& recipe, ModelShape&) { recipe.layers = 0; };
  EXPECT_EQ(error("transformer", 0, without_layers),
            "model.layers = 0: a transformer on a table reads one token, which the others reach in its "
            "layers; set it "
            "to 1 or more");
  const auto width = [](int64_t width, int64_t heads) {
    return [=](ModelRecipe& recipe, ModelShape&) {
      recipe.width = width;
      recipe.heads = heads;
    };
  };
  EXPECT_EQ(error("transformer", 5, width(100, 0)),
            "model.width = 100 can't be shared out among 6 heads (one for each 16 of width); set model.heads "
            "to 5 or "
            "4 or 2, or model.width to 96 or 102");
  EXPECT_EQ(
      error("transformer", 5, width(3, 5)),
      "model.width = 3 can't be shared out among 5 heads; set model.heads to 3 or 1, or model.width to 5");
  EXPECT_EQ(error("transformer", 5, width(64, 0)), "no error");
  EXPECT_EQ(error("lstm", 5,
                  [](ModelRecipe& recipe, ModelShape&) {
                    recipe.layers = 1;
                    recipe.dropout = 0.1;
                  }),
            "model.dropout = 0.1 acts between the layers of model.type \"lstm\", and model.layers = 1 leaves "
            "it no place; set model.layers to 2 or more, or leave model.dropout out");
  EXPECT_EQ(error("tcn", 5, [](ModelRecipe& recipe, ModelShape&) { recipe.layers = 33; }),
            "model.layers = 33: each layer of a tcn doubles what it sees, and 32 see more rows than any "
            "window has; "
            "set it to 32 or less");
  EXPECT_EQ(error("mlp", 0,
                  [](ModelRecipe&, ModelShape& shape) {
                    shape = {0, {}, 1, 0};
                  }),
            "model.type \"mlp\": the data gives it no input; name columns in data.features");
  EXPECT_EQ(error("lstn", 0), "model.type \"lstn\" is not known (did you mean \"lstm\"?)");
}

// Kinds of columns that the small shape has not: floats alone, categories alone; and no layer at all.
TEST(Models, OneKindOfInputIsEnough) {
  for (const Kind& kind : kinds()) {
    for (const bool floats : {true, false}) {
      ModelShape shape = small_shape(kind);
      Tensors in = small_inputs(kind, 3);
      if (floats) {
        shape.category_values.clear();
        in[1] = in[1].narrow(-1, 0, 0);
      } else {
        shape.floats = 0;
        in[0] = in[0].narrow(-1, 0, 0);
      }
      ModelRecipe recipe = small_recipe(kind);
      for (const int64_t layers : {0, 2}) {
        const bool may_have_none = kind.type == "mlp" || (kind.type == "transformer" && kind.window > 0);
        if (layers == 0 && !may_have_none) continue;
        recipe.layers = layers;
        const Model model(make_model(recipe, shape), 1, at::kDouble);
        const at::Tensor out = model.forward(in).at(0);
        EXPECT_EQ(out.sizes().vec(), (std::vector<int64_t>{3, 2})) << name_of(kind);
        EXPECT_GT(largest(out[0] - out[1]), 0) << name_of(kind);
      }
    }
  }
}

}  // namespace
}  // namespace troika::test
