// verify of asynchronous schedules: equal to the serial program of the same delayed updates, and not to that
// of others.
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

#include "troika/schedule/catalogue.h"
#include "troika/train/fit.h"
#include "troika/train/verify.h"

namespace troika {
namespace {

constexpr int64_t kSamples = 12, kInputs = 4;

VerifyWork make_work(const std::string& schedule, int data = 1) {
  const int lanes = 3, micro_batches = schedule == "pipedream" ? 1 : 4;
  VerifyWork work;
  for (const char* name : {"a", "b", "c", "d"}) {
    work.layers.push_back(layer<torch::nn::LinearImpl>(name, kInputs, kInputs));
    work.layers.push_back(layer<torch::nn::TanhImpl>(std::string(name) + ".tanh"));
  }
  work.loss = per_sample_loss([](const at::Tensor& o, const at::Tensor& t) { return (o - t).square(); });
  work.options.optimizer = {.kind = Optimizer::Kind::sgd, .learning_rate = 0.5};
  work.options.seed = 3;
  work.options.mesh = {data, lanes, 1};
  work.ranks = data;
  work.micro_batches = micro_batches;
  work.schedule = schedule;
  work.steps = 6;
  PipelineOptions pipeline;
  pipeline.window = [=](int steps) {
    return schedule == "pipedream"
               ? make_schedule(schedule, {.lanes = lanes, .micro_batches = steps})
               : make_schedule(schedule, {.lanes = lanes, .micro_batches = micro_batches, .updates = steps});
  };
  pipeline.schedule = pipeline.window(7);
  pipeline.starts = {0, 2, 4};
  work.options.pipeline = pipeline;
  work.batch_size = [](int64_t) { return kSamples; };
  work.batch = [](int64_t step, Range part, at::ScalarType dtype) {
    const at::Tensor flat = at::arange(kSamples * kInputs, at::kDouble) + static_cast<double>(step);
    const at::Tensor x = flat.mul(0.7).sin().view({kSamples, kInputs}).narrow(0, part.begin, part.size());
    return Batch{{x.to(dtype)}, x.cos().to(dtype), part.size()};
  };
  return work;
}

TEST(VerifyDelayed, TheEngineEqualsTheSerialProgram) {
  for (const char* schedule : {"pipedream", "pipedream-2bw"}) {
    for (const int data : {1, 2}) {
      const VerifyResult result = verify(make_work(schedule, data), at::kDouble);
      EXPECT_TRUE(result.equal) << schedule;
      EXPECT_TRUE(result.bitwise) << schedule;
      EXPECT_EQ(result.reference, "delayed");
      EXPECT_EQ(result.losses, 6);
      EXPECT_EQ(result.gradients, 6 * 8);
    }
  }
}

/// Runs the work as `change` makes it, while the reference keeps to what was asked for.
Engine changed(std::function<void(VerifyWork&)> change) {
  return [change](const VerifyWork& work, at::ScalarType dtype, const auto& on_step) {
    VerifyWork other = work;
    change(other);
    run_engine(other, dtype, on_step);
  };
}

TEST(VerifyDelayed, OtherVersionsOfTheWeightsAreSeenAndNamed) {
  const Engine all_alike = changed([](VerifyWork& work) { work.options.pipeline->vertical_sync = true; });
  const VerifyResult result = verify(make_work("pipedream"), at::kDouble, all_alike);
  EXPECT_FALSE(result.equal);
  EXPECT_FALSE(result.bitwise);
  ASSERT_TRUE(result.first_difference);
  EXPECT_EQ(result.first_difference->step, 2) << "the first that has an update behind it";
  EXPECT_EQ(result.first_difference->likely_cause, "stale_or_new_weights");
}

TEST(VerifyDelayed, SynchronousTrainingIsNotTheSame) {
  const Engine synchronous = changed([](VerifyWork& work) {
    work.options.pipeline->window = nullptr;
    work.options.pipeline->schedule =
        make_schedule("1f1b", {.lanes = 3, .micro_batches = work.micro_batches});
  });
  for (const char* schedule : {"pipedream", "pipedream-2bw"}) {
    const VerifyResult result = verify(make_work(schedule), at::kDouble, synchronous);
    EXPECT_FALSE(result.equal);
    ASSERT_TRUE(result.first_difference);
    EXPECT_EQ(result.first_difference->step, 2);
    EXPECT_EQ(result.first_difference->likely_cause, "stale_or_new_weights");
  }
}

TEST(VerifyDelayed, AnotherGradientIsNotBlamedOnVersions) {
  const Engine scaled = [](const VerifyWork& work, at::ScalarType dtype, const auto& on_step) {
    run_engine(work, dtype, [&](StepRecord record) {
      if (record.step == 3) record.gradients[2] = record.gradients[2] * 1.5;
      on_step(record);
    });
  };
  const VerifyResult result = verify(make_work("pipedream"), at::kDouble, scaled);
  ASSERT_TRUE(result.first_difference);
  EXPECT_EQ(result.first_difference->step, 3);
  EXPECT_EQ(result.first_difference->parameter, "b.weight");
  EXPECT_NEAR(result.first_difference->factor, 1.5, 1e-9);
  EXPECT_EQ(result.first_difference->likely_cause, "unknown");
}

}  // namespace
}  // namespace troika
