#include "troika/parallel/model.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/small_models.h"
#include "troika/base/error.h"

namespace troika::test {
namespace {

std::vector<std::string> names(const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> out;
  for (const NamedTensor& t : tensors) out.push_back(t.name);
  return out;
}

using Names = std::vector<std::string>;

TEST(Model, NamesParametersOnceInModelOrder) {
  const auto models = small_models();
  EXPECT_EQ(names(Model(models[0].layers, 1).parameters()),
            (Names{"in.weight", "in.bias", "mid.weight", "mid.bias", "out.weight", "out.bias"}));
  EXPECT_EQ(names(Model(models[1].layers, 1).parameters()),
            (Names{"unused", "first.weight", "first.bias", "last.weight", "last.bias"}));
  EXPECT_EQ(names(Model(models[3].layers, 1).parameters()),
            (Names{"net.inner.weight", "net.inner.bias", "net.last.weight", "net.last.bias"}));
  EXPECT_EQ(names(Model(models[2].layers, 1).others()), (Names{"net.scale"}));
}

TEST(Model, InitialWeightsDependOnNameAndSeedOnly) {
  const Layer a = layer<torch::nn::LinearImpl>("a", 4, 4), b = layer<torch::nn::LinearImpl>("b", 4, 4);
  const Model both({a, b}, 9), reversed({b, a}, 9), other_seed({a, b}, 10);
  const auto weight = [](const Model& m, size_t i) { return m.parameters()[i].tensor; };
  EXPECT_TRUE(torch::equal(weight(both, 0), weight(reversed, 2)));
  EXPECT_TRUE(torch::equal(weight(both, 2), weight(reversed, 0)));
  EXPECT_FALSE(torch::equal(weight(both, 0), weight(both, 2)));
  EXPECT_FALSE(torch::equal(weight(both, 0), weight(other_seed, 0)));
}

TEST(Model, Float64HasTheNumbersOfFloat32) {
  const SmallModel m = small_models()[2];
  const Model single(m.layers, 9), twice(m.layers, 9, at::kDouble);
  for (size_t i = 0; i < single.parameters().size(); ++i) {
    EXPECT_EQ(twice.parameters()[i].tensor.scalar_type(), at::kDouble);
    EXPECT_TRUE(torch::equal(single.parameters()[i].tensor.to(at::kDouble), twice.parameters()[i].tensor));
  }
  EXPECT_EQ(twice.others()[0].tensor.scalar_type(), at::kDouble);
}

std::string usage_error(const std::vector<Layer>& layers) {
  try {
    const Model model(layers, 1);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Model, RefusesWhatItCantName) {
  const Layer a = layer<torch::nn::LinearImpl>("a", 4, 4);
  EXPECT_NE(usage_error({a, a}).find("two layers are called \"a\""), std::string::npos);
  EXPECT_NE(usage_error({}).find("no layer"), std::string::npos);
  EXPECT_NE(usage_error({{"empty", [] { return LiveLayer{}; }}}).find("layer \"empty\" gave no module"),
            std::string::npos);
}

TEST(Model, NamesTheLayerThatFails) {
  const Model model(
      {layer<torch::nn::LinearImpl>("first", 4, 4), layer<torch::nn::LinearImpl>("second", 5, 1)}, 1);
  try {
    model.forward({torch::zeros({2, 4})});
    FAIL() << "4 columns into a layer that takes 5";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).rfind("layer \"second\", forward: ", 0), 0u) << error.what();
  }
}

TEST(Model, FindsBatchNormInsideModules) {
  const auto nested = [] {
    torch::nn::Sequential net(torch::nn::Linear(3, 3), torch::nn::BatchNorm1d(3));
    return LiveLayer{net.ptr(), [net](const Tensors& in) mutable { return Tensors{net->forward(in[0])}; }};
  };
  EXPECT_EQ(Model({{"net", nested}}, 1).first_batch_norm(), "net.1");
  EXPECT_EQ(Model({layer<torch::nn::BatchNorm2dImpl>("norm", 3)}, 1).first_batch_norm(), "norm");
  EXPECT_EQ(Model(mlp().layers, 1).first_batch_norm(), "");
}

}  // namespace
}  // namespace troika::test
