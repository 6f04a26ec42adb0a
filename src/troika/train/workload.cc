#include "troika/train/workload.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "troika/base/cpu.h"
#include "troika/base/error.h"
#include "troika/train/models/registry.h"

namespace troika {

void decide_parallel(Recipe& recipe) {
  ParallelRecipe& parallel = recipe.parallel;
  const int64_t cores = usable_cores();
  if (!parallel.ranks)
    parallel.ranks = parallel.mesh ? parallel.mesh->ranks() : std::min(cores, recipe.train.batch);
  if (!parallel.mesh) parallel.mesh = Mesh{static_cast<int>(*parallel.ranks), 1, 1};
  require_ranks(*parallel.mesh, static_cast<int>(*parallel.ranks));
  if (!parallel.threads_per_rank) parallel.threads_per_rank = std::max<int64_t>(1, cores / *parallel.ranks);
  if (recipe.model.dropout > 0 && *parallel.ranks > 1) {
    fail_usage(
        "model.dropout = {} with {} ranks is not in this version: it would depend on the number of ranks; "
        "use "
        "--ranks 1, or dropout = 0",
        recipe.model.dropout, *parallel.ranks);
  }
}

Workload prepare(const Recipe& recipe) {
  Workload work;
  work.recipe = recipe;
  work.ranks_were_auto = !recipe.parallel.ranks && !recipe.parallel.mesh;
  decide_parallel(work.recipe);
  const DataRecipe& data = work.recipe.data;
  work.dataset = open_dataset(data.path);
  for (const std::string& target : data.targets) {
    const Column& column = work.dataset.column(target);
    if (column.nulls == work.dataset.rows) {
      fail_usage("data.target \"{}\" is null in all {} rows of {}: there is nothing to learn from", target,
                 work.dataset.rows, data.path);
    }
  }
  if (!data.time.empty()) work.dataset.column(data.time);  // throws if it isn't there
  SplitOptions split;
  split.by = data.split.by == "time" ? SplitOptions::By::time : SplitOptions::By::random;
  split.validation = data.split.validation;
  split.test = data.split.test;
  split.time_column = data.time;
  split.seed = work.recipe.train.seed;
  work.split = split_rows(work.dataset, data.targets, split);
  work.train_samples = work.split.train.count();
  if (work.train_samples == 0) fail("{}: no row is left to train on", data.path);
  work.features = plan_features(work.dataset, data, work.split.train);
  work.loss_kind = choose_loss(work.recipe.train.loss, work.features, work.dataset);
  work.loss = make_loss(work.loss_kind);
  ModelShape shape;
  shape.floats = static_cast<int64_t>(work.features.floats.size());
  for (const CategoryInput& input : work.features.categories) shape.category_values.push_back(input.values);
  shape.outputs = output_width(work.loss_kind, work.features);
  work.layers = make_model(work.recipe.model, shape);
  return work;
}

ReplicaOptions replica_options(const Workload& work) {
  ReplicaOptions options;
  options.optimizer = optimizer_of(work.recipe.train);
  options.weights =
      work.recipe.parallel.weights == "replicated" ? WeightPlacement::replicated : WeightPlacement::shared;
  options.seed = work.recipe.train.seed;
  options.dtype = work.dtype();
  return options;
}

std::unique_ptr<BatchSource> open_training_source(const Workload& work, int readers) {
  SourceOptions options;
  options.readers = readers;
  return BatchSource::open(work.dataset, work.split.train, work.recipe.train.seed, options);
}

Batch make_batch(const Workload& work, const RowBuffer& rows) {
  const FeaturePlan& plan = work.features;
  const int64_t n = rows.rows;
  const auto floats = at::TensorOptions().dtype(at::kFloat);
  const auto whole = at::TensorOptions().dtype(at::kLong);
  at::Tensor numbers = at::empty({n, static_cast<int64_t>(plan.floats.size())}, floats);
  at::Tensor categories = at::empty({n, static_cast<int64_t>(plan.categories.size())}, whole);
  encode_inputs(plan, work.dataset, rows, numbers.mutable_data_ptr<float>(),
                categories.mutable_data_ptr<int64_t>());
  at::Tensor target;
  if (work.loss_kind == LossKind::cross_entropy) {
    target = at::empty({n}, whole);
    encode_classes(plan, work.dataset, rows, target.mutable_data_ptr<int64_t>());
  } else {
    target = at::empty({n, plan.target_width()}, floats);
    encode_targets(plan, work.dataset, rows, target.mutable_data_ptr<float>());
    target = target.to(work.dtype());
  }
  return {{numbers.to(work.dtype()), categories}, target, n};
}

StepPlace place_of_step(const Workload& work, int64_t step) {
  const int64_t epoch = step / work.steps_per_epoch();
  const int64_t begin = step % work.steps_per_epoch() * work.recipe.train.batch;
  return {epoch, {begin, std::min(begin + work.recipe.train.batch, work.train_samples)}};
}

}  // namespace troika
