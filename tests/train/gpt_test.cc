// The gpt: nothing of later bytes in what it says of earlier ones, and the same numbers on every mesh.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <map>

#include "support/error_of.h"
#include "train/support/pipeline_run.h"
#include "train/support/text_run.h"
#include "troika/train/models/registry.h"
#include "troika/train/predict.h"
#include "troika/train/scan_samples.h"
#include "troika/train/verify.h"
#include "troika/train/workload.h"

namespace troika {
namespace {

constexpr int64_t kWindow = 8;

std::vector<Layer> small_gpt(double dropout = 0) {
  ModelRecipe recipe;
  recipe.type = "gpt";
  recipe.width = 16;
  recipe.heads = 2;
  recipe.dropout = dropout;
  return make_model(recipe, {.floats = 0, .category_values = {257}, .outputs = 256, .window = kWindow});
}

Tensors inputs_of(const at::Tensor& bytes) {
  return {at::empty({bytes.size(0), bytes.size(1), 0}), (bytes + 1).unsqueeze(2)};
}

TEST(Gpt, ALaterByteChangesNoEarlierOutput) {
  Model model(small_gpt(), 5);
  model.train(false);
  const at::NoGradGuard no_gradients;
  const at::Tensor bytes = at::arange(2 * kWindow, at::kLong).mul(37).remainder(256).view({2, kWindow});
  const at::Tensor before = model.forward(inputs_of(bytes)).at(0);
  ASSERT_EQ(before.sizes(), (at::IntArrayRef{2, kWindow, 256}));
  for (int64_t t = 0; t < kWindow; ++t) {
    at::Tensor other = bytes.clone();
    other.select(1, t).fill_(255);
    const at::Tensor after = model.forward(inputs_of(other)).at(0);
    EXPECT_TRUE(at::equal(after.narrow(1, 0, t), before.narrow(1, 0, t))) << t;
    for (int64_t later = t; later < kWindow; ++later) {
      EXPECT_FALSE(at::equal(after.select(1, later), before.select(1, later))) << t << " seen by " << later;
    }
  }
}

TEST(Gpt, TheHeadIsTheEmbeddingAndBeginsWithEqualChances) {
  const Model model(small_gpt(), 5);
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const NamedTensor& parameter : model.parameters())
    shapes[parameter.name] = parameter.tensor.sizes().vec();
  EXPECT_EQ(shapes.at("embed.weight"), (std::vector<int64_t>{256, 16}));
  EXPECT_EQ(shapes.at("position.weight"), (std::vector<int64_t>{kWindow, 16}));
  EXPECT_FALSE(shapes.contains("head.weight"));
  EXPECT_FALSE(shapes.contains("head.bias"));
  EXPECT_EQ(shapes.size(), 2u + 2 * 12 + 2);
  const at::Tensor logits = model.forward(inputs_of(at::arange(kWindow, at::kLong).view({1, kWindow}))).at(0);
  EXPECT_LT(logits.abs().max().item<double>(), 0.5);
}

class GptRun : public RecipeRun {
 protected:
  GptRun() {
    pack_texts(folder_.path(), {some_text(2'000), some_text(900, 2)});
    recipe_ = text_recipe(folder_.path());
  }
};

/// A recipe's first steps.
VerifyWork verify_work(const Workload& work) {
  VerifyWork out;
  out.layers = work.layers;
  out.loss = work.loss;
  out.options = replica_options(work);
  out.ranks = work.mesh().data;
  out.micro_batches = static_cast<int>(work.recipe.parallel.micro_batches);
  out.steps = 2;
  out.schedule = work.schedule();
  out.batch_size = [&work](int64_t) { return work.recipe.train.batch; };
  std::vector<int64_t> starts;
  for (int64_t row = 0; row < work.split.train.universe(); ++row)
    if (work.split.train.contains(row)) starts.push_back(row);
  out.batch = [&work, starts](int64_t step, Range part, at::ScalarType) {
    RowSet rows(work.dataset.rows);
    const int64_t first = step * work.recipe.train.batch;
    for (int64_t i = part.begin; i < part.end; ++i) rows.set(starts[static_cast<size_t>(first + i)], true);
    Batch batch;
    if (part.size() == 0) return make_batch(work, RowBuffer{}, part.begin);
    scan_samples(work.dataset, rows, kWindow + 1,
                 [&](const RowBuffer& buffer) { batch = make_batch(work, buffer, part.begin); });
    return batch;
  };
  return out;
}

TEST_F(GptRun, EveryMeshIsThePlainRunWithItsTieAndItsDropout) {
  struct Case {
    int data, lanes;
    std::string schedule;
  };
  for (const Case& c : {Case{2, 1, ""}, Case{1, 2, "1f1b"}, Case{1, 2, "zb-h1"}, Case{2, 2, "zb-v"}}) {
    const Workload work = prepare(on(c.data, c.lanes, c.schedule));
    const VerifyResult result = verify(verify_work(work), at::kDouble);
    const auto where = [&] {
      return fmt::format("{} x {} {}: {}", c.data, c.lanes, c.schedule, result.max_rel_diff);
    };
    EXPECT_TRUE(result.equal) << where();
    EXPECT_TRUE(result.bitwise) << where();
    EXPECT_EQ(result.gradients, 2 * (2 + 2 * 12 + 2)) << "a tied parameter is one";
  }
}

TEST_F(GptRun, PipelinesTrainAndMeasureAsOneRankDoes) {
  const TrainReport one = run(on(1, 1), "one");
  ASSERT_TRUE(one.finished && one.validation && one.test);
  for (const std::string schedule : {"1f1b", "zb-h1", "interleaved-1f1b"}) {
    const TrainReport two = run(on(1, 2, schedule), schedule);
    EXPECT_EQ(two.train_loss, one.train_loss) << schedule;
    expect_same_weights(schedule, "one");
    EXPECT_EQ(two.test->samples, one.test->samples);
    EXPECT_NEAR((*two.test)["bits_per_byte"], (*one.test)["bits_per_byte"], 1e-6) << schedule;
  }
}

TEST_F(GptRun, AResumedRunIsTheUnbrokenOne) {
  for (const int lanes : {1, 2}) {
    const std::string whole = fmt::format("whole{}", lanes), broken = fmt::format("broken{}", lanes);
    run(on(1, lanes), whole);
    TrainOptions stopped;
    stopped.on_step = [](int64_t step, double) { return step < 4; };
    EXPECT_FALSE(run(on(1, lanes), broken, stopped).finished);
    TrainOptions resumed;
    resumed.resume = true;
    EXPECT_TRUE(run(on(1, lanes), broken, resumed).finished);
    expect_same_weights(broken, whole);
  }
}

TEST_F(GptRun, LearnsMoreThanHowFrequentBytesAre) {
  recipe_.model.dropout = 0;
  recipe_.train.steps = 120;
  recipe_.train.checkpoint_every = 0;
  const TrainReport report = run(recipe_, "run");
  ASSERT_EQ(report.baselines.size(), 1u);
  const double unigram = (*report.baselines[0].test)["bits_per_byte"];
  EXPECT_LT((*report.test)["bits_per_byte"], 0.8 * unigram);
  EXPECT_LT(report.train_loss, 0.8 * unigram * 0.6931);  // the logged loss is of a byte, not of a window
  EXPECT_EQ(report.test->samples, report.baselines[0].test->samples);
  EXPECT_NE(report_text(report).find("bits_per_byte"), std::string::npos);
}

TEST_F(GptRun, PredictSaysThatItIsForTables) {
  recipe_.train.steps = 1;
  run(recipe_, "run");
  PredictOptions options;
  options.run_dir = folder_ / "run";
  options.data = folder_ / "text";
  options.output = folder_ / "out.csv";
  options.quiet = true;
  EXPECT_SAYS(error_of([&] { predict(options); }), "its model, gpt, goes on with a text");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out.csv"));
}

}  // namespace
}  // namespace troika
