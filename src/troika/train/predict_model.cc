#include "troika/train/predict_model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "troika/base/error.h"
#include "troika/parallel/bf16.h"
#include "troika/train/evaluate.h"
#include "troika/train/models/registry.h"
#include "troika/train/run_dir.h"
#include "troika/train/weights_file.h"
#include "troika/train/workload.h"

namespace troika {
namespace {

Path checkpoint_of(const Path& run_dir) {
  if (const Path found = judged_checkpoint(run_dir); !found.empty()) return found;
  fail("{} has no checkpoint yet: neither best.safetensors nor last.safetensors is there", run_dir.string());
}

void require_run(const Path& run_dir) {
  if (!std::filesystem::is_directory(run_dir)) {
    fail_usage("{} is no run directory; `troika train` makes one (runs/NAME)", run_dir.string());
  }
  for (const char* name : {"recipe.toml", "features.json"}) {
    if (!std::filesystem::exists(run_dir / name)) {
      fail_usage("{} is no run directory: it has no {}", run_dir.string(), name);
    }
  }
}

}  // namespace

Tensors PredictModel::inputs(const Dataset& dataset, const RowBuffer& rows, int64_t span) const {
  return make_inputs(plan, dataset, rows, dtype_of(recipe.train), span);
}

at::Tensor PredictModel::predict(const Tensors& inputs) const {
  const at::NoGradGuard no_gradients;
  const Bf16Scope products(recipe.train.precision == "bf16");
  const Tensors outputs = model->forward(inputs);
  const at::Tensor plain = outputs.at(0).to(at::kDouble);
  if (plan.kind == TargetKind::number) return plain.contiguous();
  if (plain.size(1) > 1) return plain.softmax(1).contiguous();
  const at::Tensor second = plain.sigmoid();  // one logit for two classes
  return at::cat({1 - second, second}, 1).contiguous();
}

PredictModel open_run(const Path& run_dir, const Dataset& dataset) {
  require_run(run_dir);
  PredictModel out;
  out.recipe = parse_recipe(run_dir / "recipe.toml");
  out.plan = read_features(run_dir / "features.json");
  if (out.plan.kind == TargetKind::tokens) {
    fail_usage(
        "{}: its model, {}, goes on with a text, and predictions are of rows of a table; how well it does is "
        "in "
        "the run's report, and its weights are in model.safetensors",
        run_dir.string(), out.recipe.model.type);
  }
  bind_features(out.plan, dataset);
  out.weights = checkpoint_of(run_dir);
  const LossKind loss = choose_loss(out.recipe.train.loss, out.plan, dataset);
  out.model = std::make_unique<Model>(make_model(out.recipe.model, model_shape(out.plan, loss)),
                                      out.recipe.train.seed, dtype_of(out.recipe.train));
  start_from(out.weights, {}, out.model->parameters(), out.model->others());
  out.model->train(false);
  out.chunk = chunk_samples(out.recipe, out.plan, dataset, loss);
  return out;
}

}  // namespace troika
