// What tensor ranks hand to the communicator is what the plan says, to the byte, and no weight is ever among
// it (docs/algorithms.md).
#include <ATen/ops/arange.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "parallel/tensor_parity.h"

namespace troika::test {
namespace {

using torch::nn::LinearImpl;

constexpr int64_t kFloat = 4;

int64_t payload_of(const TensorPlan& plan) {
  int64_t payload = 0;
  for (const LayerSplit& layer : plan.layers) payload += layer.payload;
  return payload;
}

void expect_payload(const std::vector<Layer>& layers, const at::Tensor& input, int64_t positions,
                    const SplitChoices& choices, int64_t numbers_by_hand) {
  for (const int ranks : {2, 4}) {
    const Outcome outcome = run_split(layers, {input}, input.size(0), at::kFloat, ranks, choices);
    // The test's input needs a gradient if it can have one, a batch's doesn't.
    const int64_t for_input = input.is_floating_point() && outcome.plan.layers[0].way
                                  ? outcome.plan.layers[0].way->payload_for_input
                                  : 0;
    EXPECT_EQ(payload_of(outcome.plan), numbers_by_hand - for_input) << ranks << " ranks";
    for (const int64_t bytes : outcome.payload_bytes) {
      EXPECT_EQ(bytes, positions * numbers_by_hand * kFloat) << ranks << " ranks";
    }
  }
}

TEST(TensorPayload, APairOfProductsTakesOneSumEachWay) {
  const std::vector<Layer> pair{layer<LinearImpl>("up", 8, 32), layer<torch::nn::ReLUImpl>("relu"),
                                layer<LinearImpl>("down", 32, 12)};
  expect_payload(pair, numbers({5, 8}, 1, at::kFloat), 5, {}, 12 + 8);
  expect_payload(pair, numbers({5, 3, 8}, 1, at::kFloat), 15, {}, 12 + 8);
}

TEST(TensorPayload, AVocabularyIsOneSumOfRowsAndNoTable) {
  const std::vector<Layer> table{layer<torch::nn::EmbeddingImpl>("table", 4096, 8),
                                 layer<LinearImpl>("up", 8, 32), layer<LinearImpl>("down", 32, 4)};
  expect_payload(table, at::arange(6, at::kLong).mul(600).view({2, 3}), 6, {{"table", "vocabulary"}},
                 8 + 4 + 8);
}

TEST(TensorPayload, AChainOfProductsGoesInPairsWhateverItsBiases) {
  std::vector<Layer> chain;
  for (const char* name : {"a", "b", "c", "d"}) chain.push_back(layer<LinearImpl>(name, 16, 16));
  const TensorPlan plan = plan_tensor(chain, 2);
  const char* const ways[] = {"columns", "rows", "columns", "rows"};
  for (size_t i = 0; i < chain.size(); ++i) EXPECT_EQ(plan.layers[i].way->name, ways[i]) << i;
  EXPECT_EQ(payload_of(plan), 3 * 16);  // b forward, c back, d forward; a's input needs no gradient
}

TEST(TensorPayload, WeightsAreNeverMoved) {
  // One sample of a wide model: a tenth of one slice of the weights would show.
  const std::vector<Layer> wide{layer<LinearImpl>("up", 256, 1024), layer<LinearImpl>("down", 1024, 256)};
  const Outcome outcome = run_split(wide, {numbers({1, 256}, 1, at::kFloat)}, 1, at::kFloat, 2);
  for (const int64_t bytes : outcome.payload_bytes) EXPECT_LT(bytes, 256 * 1024 * kFloat / 10);
}

}  // namespace
}  // namespace troika::test
