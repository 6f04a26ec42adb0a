// Every kind of layer that can be split, on 1 to 4 tensor ranks and sizes that don't divide: as whole.
#include <fmt/format.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "parallel/tensor_parity.h"
#include "support/error_of.h"
#include "troika/parallel/tensor/layers.h"
#include "troika/parallel/tensor/split_linear.h"

namespace troika::test {
namespace {

using torch::nn::DropoutImpl;
using torch::nn::LinearImpl;
using torch::nn::ReLUImpl;

// The sums of a product of 20 numbers in another order.
constexpr double kProduct = 2e-6;

at::Tensor codes(at::IntArrayRef sizes, int64_t values) {
  return numbers(sizes, 17).mul(100).abs().to(at::kLong).remainder(values);
}

TEST(TensorLayers, LinearLayersByColumnsAndRowsAreTheWholeOnes) {
  for (const int64_t out : {4, 7, 12}) {
    const std::vector<Layer> one{layer<LinearImpl>("l", 9, out)};
    for (const char* way : {"columns", "rows"}) {
      expect_parity(fmt::format("9x{} by {}", out, way), one, {numbers({5, 9}, 1)}, kProduct, {{"l", way}});
      expect_parity(fmt::format("9x{} by {}, with time", out, way), one, {numbers({2, 3, 9}, 1)}, kProduct,
                    {{"*", way}});
    }
  }
}

TEST(TensorLayers, AChainOfLinearLayersMovesSlicesBetweenThem) {
  const std::vector<Layer> chain{layer<LinearImpl>("a", 6, 10), layer<ReLUImpl>("r"),
                                 layer<DropoutImpl>("d", torch::nn::DropoutOptions(0.4)),
                                 layer<LinearImpl>("b", 10, 5), layer<LinearImpl>("c", 5, 9)};
  expect_parity("chain", chain, {numbers({8, 6}, 2)}, kProduct);
  const TensorPlan plan = plan_tensor(chain, 2);
  EXPECT_EQ(plan.layers[0].way->name, "columns");
  EXPECT_EQ(plan.layers[1].in, (Spread{-1, 10}));
  EXPECT_EQ(plan.layers[3].way->name, "rows");
  EXPECT_FALSE(plan.layers[3].joins);
}

TEST(TensorLayers, EmbeddingsByVocabularyAndByColumnsAreTheWholeOnes) {
  for (const char* way : {"vocabulary", "columns"}) {
    const std::vector<Layer> one{layer<torch::nn::EmbeddingImpl>("e", 11, 6)};
    expect_parity(way, one, {codes({4, 3}, 11)}, 0, {{"e", way}});
    const std::vector<Layer> padded{
        layer<EmbeddingImpl>("e", torch::nn::EmbeddingOptions(11, 6).padding_idx(7))};
    expect_parity(way, padded, {codes({4, 3}, 11)}, 0, {{"e", way}});
  }
}

/// A user's own forward with parts that know how to be split.
struct FeedImpl : torch::nn::Module {
  FeedImpl() {
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})));
    up = register_module("up", ColumnLinear(6, 14));
    down = register_module("down", RowLinear(14, 6));
    last = register_module("last", Linear(6, 5));
  }
  at::Tensor forward(const at::Tensor& x) { return last(x + down(up(norm(x)).tanh())); }
  torch::nn::LayerNorm norm{nullptr};
  ColumnLinear up{nullptr};
  RowLinear down{nullptr};
  Linear last{nullptr};
};

TEST(TensorLayers, PartsOfAUsersOwnForwardAreSplit) {
  const std::vector<Layer> feed{layer<FeedImpl>("feed")};
  expect_parity("feed", feed, {numbers({4, 3, 6}, 3)}, kProduct);
  const LayerSplit split = plan_tensor(feed, 2).layers[0];
  EXPECT_EQ(split.way->name, "parts");
  EXPECT_EQ(split.weights, 12 + 6 * 14 + 14 + 14 * 6 + 6 + 6 * 5 + 5);
  EXPECT_EQ(split.weights_per_rank, 12 + 6 * 7 + 7 + 7 * 6 + 6 + 3 * 5 + 5);
}

struct PlainInside : torch::nn::Module {
  PlainInside() { linear = register_module("linear", torch::nn::Linear(6, 6)); }
  at::Tensor forward(const at::Tensor& x) { return linear(x).softmax(-1); }
  torch::nn::Linear linear{nullptr};
};

/// Derived from torch's, with more in its forward than torch's has.
struct SoftLinear : LinearImpl {
  SoftLinear() : LinearImpl(6, 6) {}
  at::Tensor forward(const at::Tensor& x) { return LinearImpl::forward(x).softmax(-1); }
};

struct SoftOwn : troika::LinearImpl {
  SoftOwn() : troika::LinearImpl(6, 6) {}
  at::Tensor forward(const at::Tensor& x) { return troika::LinearImpl::forward(x).softmax(-1); }
};

Layer with_own_call() {
  return {"own", [] {
            auto linear = std::make_shared<LinearImpl>(6, 6);
            return LiveLayer{linear, [linear](const Tensors& in) -> Tensors {
                               return {linear->forward(in.at(0)).softmax(-1)};
                             }};
          }};
}

TEST(TensorLayers, ALayerWhoseForwardNobodyKnowsStaysWholeAndTheTableSaysTheWayOut) {
  for (const Layer& one : {layer<PlainInside>("own"), layer<SoftLinear>("own"), with_own_call()}) {
    expect_parity("own forward", {one, layer<LinearImpl>("l", 6, 4)}, {numbers({4, 6}, 4)}, kProduct);
    const TensorPlan plan = plan_tensor({one}, 2);
    EXPECT_FALSE(plan.layers[0].way.has_value());
    EXPECT_NE(table_of(plan).find("troika::Linear"), std::string::npos) << table_of(plan);
  }
  expect_parity("derived", {layer<SoftOwn>("own")}, {numbers({4, 6}, 4)}, kProduct);
  EXPECT_EQ(plan_tensor({layer<SoftOwn>("own")}, 2).layers[0].way->name, "rows");
}

/// Of layers of torch's, and one that is Splittable.
Layer a_sequential() {
  return {"chain", [] {
            using namespace torch::nn;
            Sequential chain(torch::nn::Linear(6, 14), ReLU(), Dropout(0.4), torch::nn::Linear(14, 5),
                             LayerNorm(LayerNormOptions({5})), troika::Linear(5, 6));
            return LiveLayer{
                chain.ptr(),
                [chain](const Tensors& in) mutable -> Tensors { return {chain->forward(in.at(0))}; }, 1,
                true};
          }};
}

TEST(TensorLayers, ASequentialIsAChainOfItsOwn) {
  const std::vector<Layer> layers{layer<LinearImpl>("first", 4, 6), a_sequential(),
                                  layer<LinearImpl>("last", 6, 3)};
  expect_parity("sequential", layers, {numbers({5, 4}, 5)}, kProduct);
  const LayerSplit split = plan_tensor(layers, 2).layers[1];
  ASSERT_EQ(split.way->name, "chain") << split.why_whole;
  std::vector<std::string> names;
  for (const CutTensor& cut : split.way->cuts) names.push_back(cut.name);
  EXPECT_EQ(names, (std::vector<std::string>{"0.weight", "0.bias", "3.weight", "5.weight", "5.bias"}));
}

TEST(TensorLayers, TiedTablesAreCutAlike) {
  std::vector<Layer> layers{layer<torch::nn::EmbeddingImpl>("embed", 11, 6), layer<LinearImpl>("mid", 6, 6),
                            layer<LinearImpl>("head", torch::nn::LinearOptions(6, 11).bias(false))};
  layers[2].tie("weight", "embed", "weight");
  expect_parity("tied", layers, {codes({4, 3}, 11)}, kProduct);
  const TensorPlan plan = plan_tensor(layers, 2);
  EXPECT_EQ(plan.layers[0].way->name, "vocabulary");
  EXPECT_EQ(plan.layers[2].way->name, "columns");
  EXPECT_EQ(plan.layers[2].weights, 0);  // the table's
  for (const char* end : {"embed", "head"}) {
    const SplitChoices choices{{end, "whole"}};
    expect_parity("one end whole", layers, {codes({4, 3}, 11)}, kProduct, choices);
    const TensorPlan whole = plan_tensor(layers, 2, choices);
    EXPECT_FALSE(whole.layers[0].way.has_value() && whole.layers[0].way->name == "vocabulary") << end;
    EXPECT_FALSE(whole.layers[2].way.has_value() && whole.layers[2].way->name == "columns") << end;
  }
}

TEST(TensorLayers, LargeProductsAreCutIntoChunksThatOverlap) {
  EXPECT_EQ(row_chunks(8, 16, 16), 1);
  EXPECT_EQ(row_chunks(0, 16, 16), 1);
  EXPECT_EQ(row_chunks(1, 1 << 14, 1 << 14), 1);
  EXPECT_GT(row_chunks(512, 256, 512), 1);
  const std::vector<Layer> wide{layer<LinearImpl>("l", 512, 512)};
  const Tensors inputs{numbers({257, 512}, 6)};
  // Sums of 512 numbers.
  expect_close(run_split(wide, {inputs[0].to(at::kFloat)}, 257, at::kFloat, 2, {{"l", "rows"}}),
               run_whole(wide, {inputs[0].to(at::kFloat)}, 257, at::kFloat), 1e-5, "chunks");
}

TEST(TensorLayers, WrongChoicesAreNamed) {
  const std::vector<Layer> one{layer<LinearImpl>("first", 6, 6)};
  EXPECT_NE(error_of([&] {
              plan_tensor(one, 2, {{"frist", "rows"}});
            }).find("did you mean \"first\""),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              plan_tensor(one, 2, {{"first", "heads"}});
            }).find("whole, columns, rows"),
            std::string::npos);
}

}  // namespace
}  // namespace troika::test
