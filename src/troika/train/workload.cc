#include "troika/train/workload.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "troika/base/cpu.h"
#include "troika/base/error.h"
#include "troika/data/text_data.h"
#include "troika/parallel/batch_norm.h"
#include "troika/parallel/model.h"
#include "troika/parallel/recompute.h"
#include "troika/parallel/tensor/tensor_plan.h"
#include "troika/train/models/registry.h"
#include "troika/train/rate_schedule.h"
#include "troika/train/recipe_sections.h"

namespace troika {

namespace {

SplitOptions split_options(const DataRecipe& data, uint64_t seed) {
  SplitOptions split;
  split.by = data.split.by == "time"     ? SplitOptions::By::time
             : data.split.by == "series" ? SplitOptions::By::series
             : data.split.by == "order"  ? SplitOptions::By::order
                                         : SplitOptions::By::random;
  split.validation = data.split.validation;
  split.test = data.split.test;
  split.time_column = data.time;
  split.series_columns = data.series;
  split.seed = seed;
  return split;
}

void require_targets(const Dataset& dataset, const DataRecipe& data) {
  for (const std::string& target : data.targets) {
    if (dataset.column(target).nulls == dataset.rows) {
      fail_usage("data.target \"{}\" is null in all {} rows of {}: there is nothing to learn from", target,
                 dataset.rows, data.path);
    }
  }
}

/// The recipe's, with what the dataset says of itself: a text goes with a model that reads text, and its
/// files are its series.
DataRecipe data_of(const Dataset& dataset, const Recipe& recipe) {
  const bool text = is_text(dataset), reads_text = internal::reads_text(recipe.model.type);
  if (reads_text && !text) {
    fail_usage(
        "model.type = \"{}\" reads text, and {} is a table of {} columns: pack a text with `troika pack "
        "--text "
        "FILE... -o DATASET`, or choose another model for the table (mlp, transformer; lstm, gru, tcn, cnn "
        "for "
        "series)",
        recipe.model.type, recipe.data.path, dataset.columns.size());
  }
  if (!text) return recipe.data;
  if (!reads_text) {
    fail_usage(
        "{} is a text, and model.type = \"{}\" reads tables: set model.type = \"gpt\" and data.window, and "
        "leave data.target and data.features out",
        recipe.data.path, recipe.model.type);
  }
  DataRecipe data = recipe.data;
  if (!has_files(dataset) && !data.series.empty()) {
    fail_usage("data.series: {} is the text of one file, so there is one series; leave it out", data.path);
  }
  if (has_files(dataset)) data.series = {kFileColumn};
  return data;
}

/// Before anything is written; the engine would find it in the first step only.
void check_batch_norm(const Workload& work) {
  if (!internal::has_batch_norm(work.recipe.model.type)) return;
  const std::string layer = Model(work.layers, work.recipe.train.seed).first_batch_norm();
  if (layer.empty()) return;
  check_batch_norm_group(layer, std::min(work.recipe.train.batch, work.train_samples),
                         work.recipe.train.batch_norm_group, work.mesh().data,
                         work.recipe.parallel.micro_batches);
}

}  // namespace

int64_t most_ranks(const Recipe& recipe) {
  const int64_t batch = recipe.train.batch, group = recipe.train.batch_norm_group;
  int64_t most = batch;
  if (internal::has_batch_norm(recipe.model.type)) {
    const int64_t groups = group > 0 ? (batch + group - 1) / group : 1;
    most = std::max<int64_t>(1, groups / recipe.parallel.micro_batches);
  }
  return std::min<int64_t>(usable_cores(), most);
}

void decide_parallel(Recipe& recipe) {
  ParallelRecipe& parallel = recipe.parallel;
  if (!parallel.ranks) parallel.ranks = parallel.mesh ? parallel.mesh->ranks() : most_ranks(recipe);
  if (!parallel.mesh) parallel.mesh = Mesh{static_cast<int>(*parallel.ranks), 1, 1};
  require_ranks(*parallel.mesh, static_cast<int>(*parallel.ranks));
  if (!parallel.threads_per_rank) {
    parallel.threads_per_rank = std::max<int64_t>(1, usable_cores() / *parallel.ranks);
  }
}

ModelShape model_shape(const FeaturePlan& plan, LossKind loss) {
  ModelShape shape;
  shape.floats = static_cast<int64_t>(plan.floats.size());
  for (const CategoryInput& input : plan.categories) shape.category_values.push_back(input.values);
  shape.outputs = output_width(loss, plan);
  shape.window = plan.windows.window;
  return shape;
}

Split split_samples(const Dataset& dataset, const Recipe& recipe) {
  const DataRecipe data = data_of(dataset, recipe);
  const WindowOptions windows = windows_of(data);
  const SplitOptions options = split_options(data, recipe.train.seed);
  return windows.any() ? split_windows(dataset, data.targets, options, windows)
                       : split_rows(dataset, data.targets, options);
}

Workload prepare(const Recipe& recipe) {
  Workload work;
  work.recipe = recipe;
  work.ranks_were_auto = !recipe.parallel.ranks && !recipe.parallel.mesh;
  decide_parallel(work.recipe);
  const TrainRecipe& train = work.recipe.train;
  work.dataset = open_dataset(recipe.data.path);
  const DataRecipe data = data_of(work.dataset, recipe);
  const WindowOptions windows = windows_of(data);
  require_targets(work.dataset, data);
  if (!data.time.empty()) work.dataset.column(data.time);  // throws if it isn't there
  work.split = split_samples(work.dataset, work.recipe);
  work.train_samples = work.split.train.count();
  if (work.train_samples == 0) {
    fail("{}: no {} is left to train on", data.path, windows.any() ? "window" : "row");
  }
  check_rate_schedule(train, work.total_steps());
  work.features = windows.any()
                      ? plan_features(work.dataset, data, covered_rows(work.split.train, windows.span()))
                      : plan_features(work.dataset, data, work.split.train);
  work.loss_kind = choose_loss(train.loss, work.features, work.dataset);
  work.loss = make_loss(work.loss_kind);
  work.weights = plan_weights(work.dataset, work.recipe, work.features, work.split);
  work.layers = recompute_matching(make_model(work.recipe.model, model_shape(work.features, work.loss_kind)),
                                   work.recipe.parallel.recompute_layers, "parallel.recompute");
  check_batch_norm(work);
  if (work.mesh().tensor > 1) {
    work.tensor_plan = std::make_shared<TensorPlan>(
        plan_tensor(work.layers, work.mesh().tensor, work.recipe.parallel.splits));
  }
  work.pipeline = plan_pipeline(work.recipe, work.layers, [&work](bool in_parts) -> const ModelProfile& {
    return work.profile ? *work.profile : work.profile.emplace(profile_model(work, in_parts));
  });
  // By name, so that a resumed run, and whoever verifies it, has the same stages.
  if (work.mesh().pipeline > 1) work.recipe.parallel.cuts = first_layers(work.pipeline->options, work.layers);
  return work;
}

ReplicaOptions replica_options(const Workload& work) {
  ReplicaOptions options;
  options.mesh = work.mesh();
  if (work.pipeline) options.pipeline = work.pipeline->options;
  options.optimizer = optimizer_of(work.recipe.train);
  options.weights =
      work.recipe.parallel.weights == "replicated" ? WeightPlacement::replicated : WeightPlacement::shared;
  options.seed = work.recipe.train.seed;
  options.dtype = work.dtype();
  options.clip_norm = work.recipe.train.clip_norm;
  options.clip_by_stage = work.recipe.train.clip_by == "stage";
  options.batch_norm_group = work.recipe.train.batch_norm_group;
  options.tensor_plan = work.tensor_plan;
  options.bf16 = work.recipe.train.precision == "bf16";
  return options;
}

std::unique_ptr<BatchSource> open_training_source(const Workload& work, int readers) {
  SourceOptions options;
  options.readers = readers;
  options.span = work.features.windows.span();
  return BatchSource::open(work.dataset, work.split.train, work.recipe.train.seed, options);
}

Tensors make_inputs(const FeaturePlan& plan, const Dataset& dataset, const RowBuffer& rows,
                    at::ScalarType dtype, int64_t span) {
  std::vector<int64_t> shape{samples_in(plan, rows, span)};
  if (plan.windows.any()) shape.push_back(plan.windows.window);
  shape.push_back(static_cast<int64_t>(plan.floats.size()));
  const at::Tensor numbers = at::empty(shape, at::TensorOptions().dtype(at::kFloat));
  shape.back() = static_cast<int64_t>(plan.categories.size());
  const at::Tensor categories = at::empty(shape, at::TensorOptions().dtype(at::kLong));
  encode_inputs(plan, dataset, rows, numbers.mutable_data_ptr<float>(),
                categories.mutable_data_ptr<int64_t>(), span);
  return {numbers.to(dtype), categories};
}

Batch make_batch(const Workload& work, const RowBuffer& rows, int64_t first_sample) {
  const FeaturePlan& plan = work.features;
  Batch batch;
  batch.inputs = make_inputs(plan, work.dataset, rows, work.dtype());
  batch.samples = samples_in(plan, rows);
  batch.first_sample = first_sample;
  if (work.loss_kind == LossKind::cross_entropy) {
    std::vector<int64_t> shape{batch.samples};
    if (plan.kind == TargetKind::tokens) shape.push_back(plan.answers());
    batch.target = at::empty(shape, at::TensorOptions().dtype(at::kLong));
    encode_classes(plan, work.dataset, rows, batch.target.mutable_data_ptr<int64_t>());
  } else {
    const at::Tensor target =
        at::empty({batch.samples, plan.target_width()}, at::TensorOptions().dtype(at::kFloat));
    encode_targets(plan, work.dataset, rows, target.mutable_data_ptr<float>());
    batch.target = target.to(work.dtype());
  }
  if (work.weights.any()) {
    batch.weights = at::empty({batch.samples}, at::TensorOptions().dtype(at::kDouble));
    encode_weights(work.weights, plan, work.dataset, rows, batch.weights.mutable_data_ptr<double>());
  }
  return batch;
}

int64_t window_steps(const Workload& work, int64_t first) {
  const int64_t total = work.total_steps();
  int64_t end = total;
  const auto drain_every = [&](int64_t steps) {
    if (steps > 0) end = std::min(end, (first / steps + 1) * steps);
  };
  drain_every(work.steps_per_epoch());
  drain_every(work.recipe.train.checkpoint_every);
  drain_every(work.recipe.parallel.flush_every);
  if (const int64_t longest = work.pipeline->longest_window; longest > 0)
    end = std::min(end, first + longest);
  return end - first;
}

StepPlace place_of_step(const Workload& work, int64_t step) {
  const int64_t epoch = step / work.steps_per_epoch();
  const int64_t begin = step % work.steps_per_epoch() * work.recipe.train.batch;
  return {epoch, {begin, std::min(begin + work.recipe.train.batch, work.train_samples)}};
}

}  // namespace troika
