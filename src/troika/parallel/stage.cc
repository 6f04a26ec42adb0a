#include "troika/parallel/stage_work.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

#include "troika/base/error.h"
#include "troika/parallel/bf16.h"
#include "troika/parallel/generator_watch.h"
#include "troika/parallel/recompute.h"
#include "troika/parallel/step_context.h"
#include "troika/parallel/step_math.h"

namespace troika {
namespace {

// Layers that draw random numbers show it at once; from then on looking costs more than it finds.
constexpr int kWatchedForwards = 2;

}  // namespace

Stage::Stage(std::vector<Model*> models, const StageWiring& wiring, StageSetting setting)
    : models_(std::move(models)), wiring_(wiring), border_(border_of(wiring)), setting_(std::move(setting)) {
  for (const Model* model : models_) {
    std::vector<at::Tensor>& leaves = leaves_.emplace_back();
    for (const NamedTensor& parameter : model->parameters()) leaves.push_back(parameter.tensor);
    for (const TiedUse& use : model->tied()) leaves.push_back(use.tensor);
  }
}

Stage::~Stage() = default;

Stage::Work& Stage::work(int micro_batch) {
  TROIKA_ASSERT(micro_batch >= 0 && static_cast<size_t>(micro_batch) < works_.size(),
                fmt::format("micro-batch {} of {}", micro_batch, works_.size()));
  return *works_[static_cast<size_t>(micro_batch)];
}

void Stage::begin_steps(const StageSteps& steps, std::span<const Batch> pieces, const Loss& loss) {
  begin(pieces);
  training_ = true;
  first_step_ = steps.first;
  loss_ = &loss;
  bad_micro_batch_.reset();
  backwards_left_ = 0;
  size_t count = 1;
  for (size_t i = 0; i < works_.size(); ++i) {
    Work& work = *works_[i];
    if (!steps.of_pieces.empty()) work.step = steps.of_pieces[i];
    if (!steps.versions.empty()) work.version = steps.versions[i];
    count = std::max(count, static_cast<size_t>(work.step) + 1);
    if (!work.empty()) ++backwards_left_;
  }
  sums_.assign(count, {});
  statistics_.assign(count, BatchNormLog(*models_[0]));
}

void Stage::load(int micro_batch, const Batch& batch) {
  Work& now = work(micro_batch);
  TROIKA_ASSERT(batch.samples == now.batch.samples, fmt::format("{} samples", batch.samples));
  now.batch = batch;
}

void Stage::begin_evaluation(std::span<const Batch> pieces) {
  begin(pieces);
  training_ = false;
}

void Stage::begin(std::span<const Batch> pieces) {
  works_.clear();
  for (const Batch& batch : pieces) {
    auto work = std::make_unique<Work>();
    work->batch = batch;
    work->arrived.resize(wiring_.in.size());
    work->returned.resize(wiring_.out.size());
    works_.push_back(std::move(work));
  }
}

StepContext Stage::context_of(const Work& work, BatchNormLog* log) const {
  StepContext context = troika::context_of(setting_.options, work.batch, first_step_ + work.step, log);
  context.ranks = setting_.ranks;
  return context;
}

Tensors Stage::run_layers(const Work& work, const Tensors& inputs, BatchNormLog* log) {
  const StepScope step(context_of(work, log));
  const Bf16Scope precision(setting_.options.bf16);
  const Model& model = *models_[slot_of(work.version)];
  const bool watched = setting_.ranks > 1 && watched_ < kWatchedForwards;
  if (watched) ++watched_;
  const InputDims dims(work.dims);
  Tensors outputs = watched ? forward_watched(model, inputs, setting_.ranks) : model.forward(inputs);
  if (!is_last() && output_dims_.empty()) output_dims_ = find_output_dims(model, inputs, outputs);
  return finished(std::move(outputs));
}

Tensors Stage::evaluate(const Tensors& inputs) const {
  const at::NoGradGuard no_gradients;
  const Bf16Scope precision(setting_.options.bf16);
  return finished(models_[slot_of(setting_.weights.version())]->forward(inputs));
}

// Between stages numbers stay what they are between layers.
Tensors Stage::finished(Tensors outputs) const {
  return is_last() ? without_bf16(std::move(outputs)) : outputs;
}

void Stage::note_loss(Work& work, int micro_batch, double sum, double weight) {
  work.loss_sum = sum;
  work.weight = weight;
  Sums& sums = sums_[static_cast<size_t>(work.step)];
  sums.loss += sum;
  sums.weight += weight;
  if (!std::isfinite(sum) && !bad_micro_batch_) bad_micro_batch_ = micro_batch;
}

void Stage::run_on_given(Work& work, BatchNormLog* log) {
  work.handed.clear();
  Tensors inputs;
  for (size_t i = 0; i < work.given.size(); ++i) {
    work.handed.push_back(hand_in(work.given[i], work.needs[i] != 0));
    inputs.push_back(work.handed.back().input);
  }
  work.outputs = run_layers(work, inputs, log);
}

void Stage::forward_with_gradient(Work& work, int micro_batch, BatchNormLog* log) {
  const c10::AutoGradMode with_gradients(true);
  run_on_given(work, log);
  if (!is_last()) return;
  const LossValue value = checked_loss(*loss_, work.outputs, work.batch);
  note_loss(work, micro_batch, value.sum.item<double>(), value.weight);
  work.loss = value.sum;
  work.outputs.clear();
}

void Stage::forward(int micro_batch) {
  Work& now = work(micro_batch);
  if (now.empty()) return;
  put_inputs_together(now);
  if (now.version < 0) now.version = setting_.weights.version();
  check_version(now);
  BatchNormLog* const log = training_ ? &statistics(now.step) : nullptr;
  if (!training_) {
    now.outputs = evaluate(now.given);
    now.output_needs.assign(now.outputs.size(), 0);
    now.given.clear();
    return;
  }
  if (setting_.recomputed) {
    forward_to_forget(now, micro_batch, log);
    return;
  }
  forward_with_gradient(now, micro_batch, log);
  note_needs(now);
  now.given.clear();
}

// With gradient, as it will run again: without, torch may take another kernel, with other last bits (an
// LSTM).
void Stage::forward_to_forget(Work& work, int micro_batch, BatchNormLog* log) {
  for (const at::Tensor& tensor : work.given) {
    work.versions.push_back(tensor.defined() ? static_cast<uint32_t>(tensor._version()) : 0);
  }
  const c10::AutoGradMode with_gradients(true);
  const NoRecompute within_a_stage;
  run_on_given(work, log);
  check_inputs_unwritten(work, micro_batch);
  work.handed.clear();
  if (is_last()) work.outputs.clear();  // the loss is computed when forward runs again
  note_needs(work);
  for (at::Tensor& output : work.outputs) output = hand_out(output);
}

void Stage::note_needs(Work& work) {
  for (const at::Tensor& output : work.outputs) {
    work.output_needs.push_back(output.defined() && output.requires_grad());
  }
}

// Raw writes bypass autograd's version counter.
void Stage::check_version(const Work& work) const {
  const int64_t newest = setting_.weights.version(), oldest = newest - std::ssize(models_) + 1;
  TROIKA_ASSERT(work.version >= oldest && work.version <= newest,
                fmt::format("a micro-batch uses version {} of the weights, and there are {} to {}: written "
                            "between a forward and its backward",
                            work.version, oldest, newest));
}

void Stage::check_inputs_unwritten(const Work& work, int micro_batch) const {
  for (size_t i = 0; i < work.given.size(); ++i) {
    if (!work.given[i].defined() || work.given[i]._version() == work.versions[i]) continue;
    fail_usage(
        "stage {} writes into its input {} in place (micro-batch {}), so its forward can't run a second "
        "time: "
        "use the layer's form that doesn't, or no recompute for this stage",
        wiring_.stage, i, micro_batch);
  }
}

void Stage::recompute(int micro_batch) {
  Work& now = work(micro_batch);
  if (now.empty()) return;
  check_version(now);
  // Running statistics have had this micro-batch already.
  BatchNormLog ignored(*models_[0]);
  forward_with_gradient(now, micro_batch, &ignored);
}

bool Stage::has_backward(const Work& work) const { return !work.empty() && std::isfinite(work.loss_sum); }

void Stage::keep_input_gradients(Work& work, const Tensors& gradients) {
  work.input_gradients.assign(work.handed.size(), at::Tensor());
  size_t next = 0;
  for (size_t i = 0; i < work.handed.size(); ++i) {
    if (work.handed[i].leaf.defined()) work.input_gradients[i] = gradients[next++];
  }
  work.handed.clear();
}

void Stage::let_go(Work& work) {
  work.loss.reset();
  work.given.clear();
  work.batch.inputs.clear();
  work.batch.target.reset();
}

void Stage::begin_weight_part(Work& work) {
  if (!work.empty() && --backwards_left_ == 0) setting_.weights.before_last_backward();
}

void Stage::backward(int micro_batch) {
  Work& now = work(micro_batch);
  begin_weight_part(now);
  if (!has_backward(now)) return;
  Tensors roots, gradients;
  collect_roots(now, roots, gradients);
  Tensors inputs;
  if (!roots.empty()) torch::autograd::backward(roots, gradients);
  for (const HandedIn& handed : now.handed) {
    if (handed.leaf.defined()) inputs.push_back(handed.leaf.grad());
  }
  keep_input_gradients(now, inputs);
  let_go(now);
}

void Stage::backward_input(int micro_batch) {
  Work& now = work(micro_batch);
  if (!has_backward(now)) return;
  Tensors roots, gradients, inputs;
  collect_roots(now, roots, gradients);
  for (const HandedIn& handed : now.handed) {
    if (handed.leaf.defined()) inputs.push_back(handed.leaf);
  }
  now.split.emplace(std::move(roots), inputs, leaves_[slot_of(now.version)]);
  keep_input_gradients(now, now.split->input_part(gradients));
  let_go(now);
}

void Stage::backward_weight(int micro_batch) {
  Work& now = work(micro_batch);
  begin_weight_part(now);
  if (!now.split) return;
  now.split->weight_part();
  now.split.reset();
}

int Stage::number_in_step(int micro_batch) const {
  const auto is_of_step = [&](const auto& work) {
    return work->step == works_[static_cast<size_t>(micro_batch)]->step;
  };
  return static_cast<int>(std::count_if(works_.begin(), works_.begin() + micro_batch, is_of_step));
}

NonFinite Stage::find_bad_number(int micro_batch) {
  Work& now = work(micro_batch);
  BatchNormLog ignored(*models_[0]);
  const StepScope same_noise(context_of(now, &ignored));
  const Bf16Scope precision(setting_.options.bf16);
  Batch of_stage = now.batch;
  of_stage.inputs = now.given;
  if (of_stage.inputs.empty()) {
    for (const HandedIn& handed : now.handed) of_stage.inputs.push_back(hand_out(handed.input));
  }
  if (!is_last()) of_stage.target = at::Tensor();
  return find_non_finite(*models_[slot_of(now.version)], of_stage);
}

Tensors Stage::outputs(int micro_batch) { return std::move(work(micro_batch).outputs); }

}  // namespace troika
