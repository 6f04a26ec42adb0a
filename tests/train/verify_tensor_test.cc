// verify on tensor ranks: slices are equal to the whole; each mistake that tensor ranks can make is caught,
// and named.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "train/support/verify_work.h"
#include "troika/parallel/tensor/peer_functions.h"
#include "troika/parallel/tensor/tensor_plan.h"
#include "troika/schedule/catalogue.h"

namespace troika {
namespace {

constexpr int64_t kInputs = 4, kWidth = 6, kSamples = 11;
constexpr int kMicroBatches = 2;

enum class Mistake { none, no_sum_back, two_sums_back, no_sum, bias_on_each_rank, swapped_slices };

/// As a Linear by columns or by rows, done wrong. Its weight is this rank's slice, or the next rank's.
class WrongLinear : public torch::nn::LinearImpl, public Splittable {
 public:
  WrongLinear(int64_t in, int64_t out, bool by_rows, Mistake mistake)
      : LinearImpl(in, out), by_rows_(by_rows), mistake_(mistake) {}

  at::Tensor forward(const at::Tensor& x) {
    if (axis_ == nullptr) return LinearImpl::forward(x);
    if (!by_rows_) {
      at::Tensor in = mistake_ == Mistake::no_sum_back ? x : to_slices(x, *axis_);
      if (mistake_ == Mistake::two_sums_back) in = to_slices(in, *axis_);
      return at::linear(in, weight, bias);
    }
    if (mistake_ == Mistake::bias_on_each_rank) return sum_parts(at::linear(x, weight, bias), *axis_);
    const at::Tensor part = at::linear(mistake_ == Mistake::swapped_slices ? other_slice(x) : x, weight);
    return (mistake_ == Mistake::no_sum ? part : sum_parts(part, *axis_)) + bias;
  }

  std::vector<SplitWay> ways(int) const override {
    if (by_rows_)
      return {{"rows", {-1, options.in_features()}, {}, {{"weight", {1, options.in_features()}}}}};
    const int64_t out = options.out_features();
    return {{"columns", {}, {-1, out}, {{"weight", {0, out}}, {"bias", {0, out}}}}};
  }
  void split(const SplitWay&, TensorAxis& axis) override { axis_ = &axis; }

 private:
  /// What the other of two ranks should work on.
  at::Tensor other_slice(const at::Tensor& x) const {
    const at::Tensor whole = gather_for_slices(x, -1, options.in_features(), *axis_);
    return axis_->rank() == 0 ? whole.narrow(-1, kWidth / 2, kWidth / 2) : whole.narrow(-1, 0, kWidth / 2);
  }

  bool by_rows_;
  Mistake mistake_;
  TensorAxis* axis_ = nullptr;
};

std::vector<Layer> layers_with(Mistake by_columns, Mistake by_rows) {
  return {layer<torch::nn::LinearImpl>("in", kInputs, kWidth),
          layer<torch::nn::TanhImpl>("t"),
          layer<torch::nn::DropoutImpl>("d", torch::nn::DropoutOptions(0.3)),
          layer<WrongLinear>("up", kWidth, kWidth, false, by_columns),
          layer<WrongLinear>("down", kWidth, kWidth, true, by_rows),
          layer<torch::nn::LinearImpl>("out", kWidth, 1)};
}

VerifyWork make_work(const Mesh& mesh) {
  VerifyWork work =
      sine_work(layers_with(Mistake::none, Mistake::none), mesh, kMicroBatches, kInputs, kSamples);
  work.options.optimizer.momentum = 0.9;
  // What comes in is whole, so that a sum that is missing shows in a parameter that every rank has.
  work.options.tensor_plan =
      std::make_shared<TensorPlan>(plan_tensor(work.layers, mesh.tensor, {{"in", "whole"}}));
  work.schedule = "1f1b";
  if (mesh.pipeline > 1) {
    work.options.pipeline = PipelineOptions{
        make_schedule(work.schedule, {.lanes = mesh.pipeline, .micro_batches = kMicroBatches}), {0, 4}};
  }
  return work;
}

TEST(VerifyTensor, SlicesAreEqualToTheWholeAndBitForBitToOneThreadEach) {
  for (const Mesh& mesh : {Mesh{1, 1, 2}, Mesh{2, 1, 2}, Mesh{1, 2, 3}, Mesh{2, 2, 2}}) {
    VerifyWork work = make_work(mesh);
    const VerifyResult result = verify(work, at::kDouble);
    EXPECT_TRUE(result.equal && result.bitwise)
        << to_string(mesh) << ": " << (result.first_difference ? result.first_difference->what : "");
    EXPECT_EQ(result.weights, 3 * 8 * mesh.data * mesh.tensor + 8 * mesh.data * mesh.tensor);
  }
}

TEST(VerifyTensor, MistakesOfTensorRanksAreNamed) {
  struct Case {
    std::vector<Layer> layers;
    const char *cause, *detail;
  };
  const Mistake none = Mistake::none;
  const Case cases[] = {
      {layers_with(Mistake::no_sum_back, none), "missing_contribution", "lacks a sum over tensor ranks"},
      {layers_with(Mistake::two_sums_back, none), "double_contribution", "once too often"},
      {layers_with(none, Mistake::bias_on_each_rank), "double_contribution", "ranks adds \"down.bias\""},
      {layers_with(none, Mistake::swapped_slices), "shard_swapped", "\"down.weight\""},
      {layers_with(none, Mistake::no_sum), "", ""},
  };
  for (const Case& c : cases) {
    const VerifyResult result = verify(make_work({1, 1, 2}), at::kDouble, with_layers(c.layers));
    EXPECT_FALSE(result.equal) << c.detail;
    ASSERT_TRUE(result.first_difference.has_value()) << c.detail;
    if (*c.cause == '\0') continue;
    EXPECT_EQ(result.first_difference->likely_cause, c.cause) << c.detail;
    EXPECT_NE(result.first_difference->detail.find(c.detail), std::string::npos)
        << result.first_difference->detail;
  }
}

}  // namespace
}  // namespace troika
