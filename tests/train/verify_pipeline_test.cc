// verify on pipelines: with skips, ties and recompute it is equal; each mistake that a pipeline can make is
// caught, and named.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <atomic>

#include "support/lying_layer.h"
#include "train/support/verify_work.h"
#include "troika/parallel/recompute.h"
#include "troika/schedule/catalogue.h"

namespace troika {
namespace {

constexpr int64_t kInputs = 5, kWidth = 6, kSamples = 11;
constexpr int kMicroBatches = 3;

Layer linear(const std::string& name, int64_t in, int64_t out) {
  return layer<torch::nn::LinearImpl>(name, in, out);
}

/// Nothing but a function.
Layer function(const std::string& name, std::function<Tensors(const Tensors&)> forward) {
  struct Empty : torch::nn::Module {};
  return {name, [forward] { return LiveLayer{std::make_shared<Empty>(), forward}; }};
}

Layer tanh_layer(const std::string& name) {
  return function(name, [](const Tensors& in) { return Tensors{in.at(0).tanh()}; });
}
Layer fork(const std::string& name) {
  return function(name, [](const Tensors& in) {
    const at::Tensor h = in.at(0).tanh();
    return Tensors{h, h};
  });
}
Layer join(const std::string& name, bool deaf = false) {
  return function(name, [deaf](const Tensors& in) {
    return Tensors{in.at(0) * (deaf ? in.at(1).detach() : in.at(1)) + in.at(0)};
  });
}

/// Stages of 0: "a", "fork"; 1: "b", "near"; 2: "join", "c", "out". c's weight is b's.
std::vector<Layer> honest() {
  return {linear("a", kInputs, kWidth), fork("fork").put("s"),
          linear("b", kWidth, kWidth),  tanh_layer("near"),
          join("join").get("s"),        linear("c", kWidth, kWidth).tie("weight", "b", "weight"),
          linear("out", kWidth, 1)};
}

/// On three lanes and two data ranks.
VerifyWork make_work(const std::string& schedule = "1f1b") {
  VerifyWork work = sine_work(honest(), {2, 3, 1}, kMicroBatches, kInputs, kSamples);
  work.options.pipeline =
      PipelineOptions{make_schedule(schedule, {.lanes = 3, .micro_batches = kMicroBatches}), {0, 2, 4}};
  return work;
}

/// The honest layers but those of one name.
std::vector<Layer> with(Layer liar) {
  std::vector<Layer> layers = honest();
  for (Layer& layer : layers) {
    if (layer.name != liar.name) continue;
    liar.puts = layer.puts;
    liar.gets = layer.gets;
    liar.ties = layer.ties;
    layer = liar;
  }
  return layers;
}

std::vector<Layer> lying(const std::string& name, const Lie& lie) {
  return with(lying_linear(name, name == "a" ? kInputs : kWidth, name == "out" ? 1 : kWidth, lie));
}

Lie own_times(double factor) {
  return {.own_gradient = [factor](int64_t) { return factor; }};
}

/// The place of each piece's first sample, by data rank and micro-batch.
int64_t first_of(int rank, int micro_batch) {
  return piece_of({0, kSamples}, kMicroBatches, micro_batch, 2, rank, 1).begin;
}

struct Expected {
  const char* what;
  std::vector<Layer> layers;
  const char* cause;
  const char* parameter;
  double factor;  // 0: any
  int64_t step;
  const char* detail;
};

std::vector<Expected> mistakes() {
  const auto only_first_rank = [](int64_t first) {
    double factor = 0;
    for (int j = 0; j < kMicroBatches; ++j) factor += first == first_of(0, j);
    return factor;
  };
  const auto not_the_last = [](int64_t first) {
    return first == first_of(0, 2) || first == first_of(1, 2) ? 0.0 : 1.0;
  };
  const auto not_one_piece = [](int64_t first) { return first == first_of(1, 1) ? 0.0 : 1.0; };
  return {
      {"divided by the micro-batches once more", lying("out", own_times(1.0 / kMicroBatches)),
       "micro_batch_scale", "out.weight", 1.0 / kMicroBatches, 1, ""},
      {"not divided by them", lying("a", own_times(kMicroBatches)), "micro_batch_scale", "a.weight",
       kMicroBatches, 1, ""},
      {"divided by all ranks", lying("out", own_times(1.0 / 6)), "sum_not_mean", "out.weight", 1.0 / 6, 1,
       ""},
      {"multiplied by the data ranks", lying("a", own_times(2)), "sum_not_mean", "a.weight", 2, 1, ""},
      {"a micro-batch of one rank never comes back to the first stage",
       lying("out", {.input_gradient = not_one_piece}), "missing_contribution", "a.weight", 0, 1,
       "what is of micro-batch 1 of data rank 1 is lost"},
      {"a message back to the first stage is lost", lying("b", {.input_gradient = not_one_piece}),
       "missing_contribution", "a.weight", 0, 1,
       "the gradient that stage 1 sends to stage 0 is lost, of micro-batch 1 of data rank 1"},
      {"the first stage gets none", lying("b", {.input_gradient = [](int64_t) { return 0.0; }}),
       "missing_contribution", "a.weight", 0, 1, "the gradient that stage 1 sends to stage 0 is lost"},
      {"a stage's gradient of a micro-batch is lost", lying("out", {.own_gradient = not_one_piece}),
       "missing_contribution", "out.weight", 0, 1, "what is of micro-batch 1 of data rank 1 is lost"},
      {"the last micro-batch is lost", lying("out", {.own_gradient = not_the_last}), "missing_contribution",
       "out.weight", 0, 1, "what is of micro-batch 2 is lost"},
      {"a stage isn't reduced over the data ranks", lying("out", {.own_gradient = only_first_rank}),
       "missing_contribution", "out.weight", 0, 1, ""},
      {"a piece counts twice",
       lying("a", {.own_gradient = [=](int64_t first) { return 2 - not_one_piece(first); }}),
       "double_contribution", "a.weight", 0, 1, "what is of micro-batch 1 of data rank 1 counts twice"},
      {"a stage forwards with the step before's weights", lying("b", {.stale_forward = true}),
       "stale_or_new_weights", "", 0, 2, "stage 1 computes with the weights of the step before"},
      {"a tied gradient counts twice", lying("c", own_times(2)), "tied_twice", "b.weight", 0, 1,
       "the gradient of its use as c.weight counts twice"},
      {"the owner's counts twice", lying("b", own_times(2)), "tied_twice", "b.weight", 0, 1,
       "the gradient of its use as b.weight counts twice"},
      {"a use's gradient is lost", lying("c", own_times(0)), "missing_contribution", "b.weight", 0, 1,
       "the gradient of its use as c.weight is lost"},
      {"a skip's gradient is lost", with(join("join", true)), "missing_contribution", "a.weight", 0, 1,
       "the gradient of skip \"s\" from layer \"join\" is lost"},
  };
}

TEST(VerifyPipeline, EachMistakeIsCaughtAndNamed) {
  for (const std::string schedule : {"1f1b", "zb-h1"}) {
    for (const Expected& e : mistakes()) {
      SCOPED_TRACE(schedule + ": " + e.what);
      const VerifyResult result = verify(make_work(schedule), at::kDouble, with_layers(e.layers));
      EXPECT_FALSE(result.equal);
      EXPECT_FALSE(result.bitwise);
      ASSERT_TRUE(result.first_difference);
      EXPECT_EQ(result.first_difference->likely_cause, e.cause);
      EXPECT_EQ(result.first_difference->parameter, e.parameter);
      EXPECT_EQ(result.first_difference->step, e.step);
      if (e.factor != 0) {
        EXPECT_NEAR(result.first_difference->factor, e.factor, 1e-9);
      }
      if (e.detail[0] != 0) {
        EXPECT_EQ(result.first_difference->detail, e.detail);
      }
    }
  }
}

/// Each layer is a stage.
TEST(VerifyPipeline, AStageWithOtherWeightsIsNamed) {
  VerifyWork work = make_work();
  work.layers = {linear("a", kInputs, kWidth), linear("b", kWidth, kWidth), linear("c", kWidth, 1)};
  work.options.pipeline->starts = {0, 1, 2};
  const auto run = [&](const Lie& lie) {
    std::vector<Layer> layers = work.layers;
    layers[1] = lying_linear("b", kWidth, kWidth, lie);
    const VerifyResult result = verify(work, at::kDouble, with_layers(layers));
    EXPECT_FALSE(result.equal);
    EXPECT_FALSE(result.bitwise);
    EXPECT_TRUE(result.first_difference);
    EXPECT_EQ(result.first_difference->step, 2);
    EXPECT_EQ(result.first_difference->likely_cause, "stale_or_new_weights");
    return *result.first_difference;
  };
  const Difference forward = run({.stale_forward = true, .stale_backward = true});
  EXPECT_EQ(forward.what, "loss");
  EXPECT_EQ(forward.detail, "stage 1 computes with the weights of the step before");
  // As of a pipeline that stashes no weights: forward before an update, backward after it.
  EXPECT_EQ(run({.stale_forward = true}).detail, "stage 1 computes with the weights of the step before");
  const Difference backward = run({.stale_backward = true});
  EXPECT_EQ(backward.what, "gradients");
  EXPECT_EQ(backward.parameter, "a.weight");
  EXPECT_EQ(backward.detail,
            "stage 1 goes forward with this step's weights and back with the weights of the step before");
}

// The lying layer without a lie passes, so the refusals above are about the lies.
TEST(VerifyPipeline, NoLieNoDifference) {
  const VerifyResult result = verify(make_work("zb-h1"), at::kDouble, with_layers(lying("b", {})));
  EXPECT_TRUE(result.equal) << result.max_rel_diff;
}

struct DropBlock : torch::nn::Module {
  torch::nn::Linear inner{register_module("inner", torch::nn::Linear(kWidth, kWidth))};
  torch::nn::Dropout drop{register_module("drop", torch::nn::Dropout(0.3))};
  at::Tensor forward(const at::Tensor& x) { return drop(inner(x).tanh()) + x; }
};

/// A skip that is read twice, a tie, dropout, clipping and recompute at once.
TEST(VerifyPipeline, SkipsTiesNoiseAndRecomputeAreThePlainRun) {
  for (const bool again : {false, true}) {
    VerifyWork work = make_work("zb-h1");
    work.options.clip_norm = 0.5;
    work.options.optimizer.kind = Optimizer::Kind::adamw;
    work.options.optimizer.weight_decay = 0.1;
    work.layers.insert(work.layers.begin() + 6, layer<DropBlock>("block"));
    work.layers.insert(work.layers.begin() + 7, join("again").get("s"));
    if (again) work.layers = recompute_matching(work.layers, {"*"}, "test");
    const VerifyResult result = verify(work, at::kDouble);
    EXPECT_TRUE(result.equal) << result.max_rel_diff;
    EXPECT_TRUE(result.bitwise);
    EXPECT_EQ(result.gradients, 3 * 9) << "a tied parameter is one";
  }
}

/// What a recomputed layer would do wrong shows, since the references don't recompute.
TEST(VerifyPipeline, TheReferencesRecomputeNothing) {
  std::atomic<int> forwards = 0;
  VerifyWork work = make_work();
  work.steps = 1;
  work.layers[3] = recomputed(function("near", [&forwards](const Tensors& in) {
    ++forwards;
    return Tensors{in.at(0).tanh()};
  }));
  EXPECT_TRUE(verify(work, at::kDouble).equal);
  constexpr int kPieces = 2 * kMicroBatches;
  constexpr int kEngine = 2 * kPieces + 2;  // with a trial on each data rank
  EXPECT_EQ(forwards, 2 * kEngine + 1 + kPieces) << "engines, the plain run, the micro-batched one";
}

}  // namespace
}  // namespace troika
