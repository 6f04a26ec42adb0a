#include "troika/parallel/stage.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

#include "troika/base/error.h"
#include "troika/parallel/bf16.h"
#include "troika/parallel/generator_watch.h"
#include "troika/parallel/step_context.h"
#include "troika/parallel/step_math.h"

namespace troika {
namespace {

// Layers that draw random numbers show it at once; from then on looking costs more than it finds.
constexpr int kWatchedForwards = 2;

const StageEdge& edge_with(const std::vector<StageEdge>& edges, int stage) {
  const auto found = std::ranges::find(edges, stage, &StageEdge::stage);
  TROIKA_ASSERT(found != edges.end(), fmt::format("no edge to stage {}", stage));
  return *found;
}

size_t place_of(const std::vector<StageEdge>& edges, int stage) {
  return static_cast<size_t>(&edge_with(edges, stage) - edges.data());
}

std::string shape_text(const at::Tensor& tensor) {
  if (!tensor.defined()) return "nothing";
  return fmt::format("[{}] {}", fmt::join(tensor.sizes(), ", "), c10::toString(tensor.scalar_type()));
}

}  // namespace

/// All of one micro-batch that outlives a pass.
struct Stage::Work {
  const Batch* batch = nullptr;
  std::vector<Parcel> arrived;     // by edge in: activations
  size_t chain_inputs = 0;         // of `given`
  Tensors given;                   // what the layers read: the chain's, then the imports
  std::vector<uint8_t> needs;      // of `given`
  std::vector<HandedIn> handed;    // the same in the graph
  std::vector<uint32_t> versions;  // of `given`, before a forward that is to run again
  int64_t weight_version = 0;      // when the forward ran that a backward belongs to
  Tensors outputs;                 // the chain's, then the exports
  std::vector<uint8_t> output_needs;
  at::Tensor loss;                  // the sum over the samples, on the last stage
  double loss_sum = 0, weight = 0;  // as the chain's gradient says them, or the loss itself
  std::vector<Parcel> returned;     // by edge out: gradients
  Tensors input_gradients;          // of `given`
  std::optional<SplitBackward> split;

  bool empty() const { return batch->samples == 0; }
};

Stage::Stage(Model& model, const StageWiring& wiring, StageSetting setting)
    : model_(model),
      wiring_(wiring),
      border_(border_of(wiring)),
      setting_(std::move(setting)),
      statistics_(model) {
  for (const NamedTensor& parameter : model.parameters()) leaves_.push_back(parameter.tensor);
  for (const TiedUse& use : model.tied()) leaves_.push_back(use.tensor);
}

Stage::~Stage() = default;

Stage::Work& Stage::work(int micro_batch) {
  TROIKA_ASSERT(micro_batch >= 0 && static_cast<size_t>(micro_batch) < works_.size(),
                fmt::format("micro-batch {} of {}", micro_batch, works_.size()));
  return *works_[static_cast<size_t>(micro_batch)];
}

void Stage::begin_step(int64_t step, std::span<const Batch> pieces, const Loss& loss) {
  begin(pieces);
  training_ = true;
  step_ = step;
  loss_ = &loss;
  statistics_.clear();
  loss_sum_ = weight_ = 0;
  bad_micro_batch_.reset();
  backwards_left_ = std::ranges::count_if(pieces, [](const Batch& batch) { return batch.samples > 0; });
}

void Stage::begin_evaluation(std::span<const Batch> pieces) {
  begin(pieces);
  training_ = false;
}

void Stage::begin(std::span<const Batch> pieces) {
  works_.clear();
  for (const Batch& batch : pieces) {
    auto work = std::make_unique<Work>();
    work->batch = &batch;
    work->arrived.resize(wiring_.in.size());
    work->returned.resize(wiring_.out.size());
    works_.push_back(std::move(work));
  }
}

StepContext Stage::context_of(const Batch& batch, BatchNormLog* log) const {
  StepContext context = troika::context_of(setting_.options, batch, step_, log);
  context.ranks = setting_.ranks;
  return context;
}

// The chain's tensors first: they come along the edge from the stage before, with skips behind them.
void Stage::put_inputs_together(Work& work) {
  if (is_first()) {
    work.given = work.batch->inputs;
    work.needs.assign(work.given.size(), 0);
  }
  Tensors imports;
  std::vector<uint8_t> import_needs;
  for (size_t e = 0; e < wiring_.in.size(); ++e) {
    const StageEdge& edge = wiring_.in[e];
    Parcel& parcel = work.arrived[e];
    const size_t skips = edge.skips.size(), all = parcel.tensors.size();
    if (all < skips || (!edge.chain && all > skips)) {
      fail("stage {} gets {} tensor{} from stage {}, which puts {} for it", wiring_.stage, all,
           all == 1 ? "" : "s", edge.stage, skips);
    }
    for (size_t i = 0; i < all; ++i) {
      const bool is_skip = i >= all - skips;
      (is_skip ? imports : work.given).push_back(std::move(parcel.tensors[i]));
      (is_skip ? import_needs : work.needs).push_back(parcel.needs_gradient.at(i));
    }
    parcel = {};
  }
  work.chain_inputs = work.given.size();
  work.given.insert(work.given.end(), imports.begin(), imports.end());
  work.needs.insert(work.needs.end(), import_needs.begin(), import_needs.end());
}

Tensors Stage::run_layers(const Work& work, const Tensors& inputs, BatchNormLog* log) {
  const StepScope step(context_of(*work.batch, log));
  const Bf16Scope precision(setting_.options.bf16);
  const bool watched = setting_.ranks > 1 && watched_ < kWatchedForwards;
  if (watched) ++watched_;
  return finished(watched ? forward_watched(model_, inputs, setting_.ranks) : model_.forward(inputs));
}

Tensors Stage::evaluate(const Tensors& inputs) const {
  const at::NoGradGuard no_gradients;
  const Bf16Scope precision(setting_.options.bf16);
  return finished(model_.forward(inputs));
}

// Between stages numbers stay what they are between layers.
Tensors Stage::finished(Tensors outputs) const {
  return is_last() ? without_bf16(std::move(outputs)) : outputs;
}

void Stage::note_loss(Work& work, int micro_batch, double sum, double weight) {
  work.loss_sum = sum;
  work.weight = weight;
  loss_sum_ += sum;
  weight_ += weight;
  if (!std::isfinite(sum) && !bad_micro_batch_) bad_micro_batch_ = micro_batch;
}

void Stage::forward_with_gradient(Work& work, int micro_batch, BatchNormLog* log) {
  work.handed.clear();
  Tensors inputs;
  for (size_t i = 0; i < work.given.size(); ++i) {
    work.handed.push_back(hand_in(work.given[i], work.needs[i] != 0));
    inputs.push_back(work.handed.back().input);
  }
  work.weight_version = setting_.weights.version();
  work.outputs = run_layers(work, inputs, log);
  if (!is_last()) return;
  const LossValue value = checked_loss(*loss_, work.outputs, *work.batch);
  note_loss(work, micro_batch, value.sum.item<double>(), value.weight);
  work.loss = value.sum;
  work.outputs.clear();
}

void Stage::forward(int micro_batch) {
  Work& now = work(micro_batch);
  if (now.empty()) return;
  put_inputs_together(now);
  if (training_ && !setting_.recomputed) {
    const c10::AutoGradMode with_gradients(true);
    forward_with_gradient(now, micro_batch, &statistics_);
    for (const at::Tensor& output : now.outputs) {
      now.output_needs.push_back(output.defined() && output.requires_grad());
    }
    now.given.clear();
    return;
  }
  const at::NoGradGuard no_gradients;
  if (training_) {
    for (const at::Tensor& tensor : now.given) {
      now.versions.push_back(tensor.defined() ? static_cast<uint32_t>(tensor._version()) : 0);
    }
    now.outputs = run_layers(now, now.given, &statistics_);
    if (is_last()) now.outputs.clear();  // the loss is computed when forward runs again
    check_inputs_unwritten(now, micro_batch);
  } else {
    now.outputs = evaluate(now.given);
    now.given.clear();
  }
  for (const at::Tensor& output : now.outputs) {
    now.output_needs.push_back(training_ && output.defined() && output.is_floating_point());
  }
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
  const c10::AutoGradMode with_gradients(true);
  // Running statistics have had this micro-batch already.
  BatchNormLog ignored(model_);
  forward_with_gradient(now, micro_batch, &ignored);
}

// Which of `outputs` outputs go along an edge, in the order of its parcels.
std::vector<size_t> Stage::outputs_along(const StageEdge& edge, size_t outputs) const {
  const std::vector<std::string>& exports = border_.exports;
  const size_t chain = outputs - exports.size();
  std::vector<size_t> places;
  for (size_t i = 0; edge.chain && i < chain; ++i) places.push_back(i);
  for (const std::string& skip : edge.skips) {
    places.push_back(chain + static_cast<size_t>(std::ranges::find(exports, skip) - exports.begin()));
  }
  return places;
}

Parcel Stage::activation_for(int micro_batch, int to) {
  Work& now = work(micro_batch);
  Parcel parcel;
  if (now.empty()) return parcel;
  for (const size_t i : outputs_along(edge_with(wiring_.out, to), now.outputs.size())) {
    parcel.tensors.push_back(hand_out(now.outputs[i]));
    parcel.needs_gradient.push_back(now.output_needs[i]);
  }
  return parcel;
}

void Stage::take_activation(int micro_batch, int from, Parcel parcel) {
  work(micro_batch).arrived[place_of(wiring_.in, from)] = std::move(parcel);
}

void Stage::take_gradient(int micro_batch, int from, Parcel parcel) {
  Work& now = work(micro_batch);
  const StageEdge& edge = edge_with(wiring_.out, from);
  if (edge.chain) note_loss(now, micro_batch, parcel.loss_sum, parcel.weight);
  now.returned[place_of(wiring_.out, from)] = std::move(parcel);
}

bool Stage::has_backward(const Work& work) const { return !work.empty() && std::isfinite(work.loss_sum); }

// An output's gradient is the sum over the stages that read it, the last stage's first: so autograd adds them
// in a serial run.
void Stage::collect_roots(Work& work, Tensors& roots, Tensors& gradients) const {
  // Raw writes bypass autograd's version counter.
  TROIKA_ASSERT(setting_.weights.version() == work.weight_version,
                "weights were written between a forward and its backward");
  if (is_last()) {
    roots = {work.loss};
    gradients = {at::ones_like(work.loss)};
    return;
  }
  Tensors sums(work.outputs.size());
  for (size_t e = wiring_.out.size(); e-- > 0;) {
    const StageEdge& edge = wiring_.out[e];
    Tensors& returned = work.returned[e].tensors;
    const std::vector<size_t> places = outputs_along(edge, work.outputs.size());
    if (returned.size() != places.size()) {
      fail("stage {} sent {} tensor{} to stage {} and gets {} gradients back", wiring_.stage, places.size(),
           places.size() == 1 ? "" : "s", edge.stage, returned.size());
    }
    for (size_t i = 0; i < places.size(); ++i) {
      const at::Tensor& output = work.outputs[places[i]];
      at::Tensor& sum = sums[places[i]];
      const at::Tensor& gradient = returned[i];
      if (!gradient.defined() || !output.requires_grad()) continue;
      if (gradient.sizes() != output.sizes()) {
        fail("stage {} gave {} to stage {} and gets a gradient of {} back", wiring_.stage, shape_text(output),
             edge.stage, shape_text(gradient));
      }
      sum = sum.defined() ? at::add(sum, gradient) : gradient;
    }
    returned.clear();
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    if (!sums[i].defined()) continue;
    roots.push_back(std::move(work.outputs[i]));
    gradients.push_back(std::move(sums[i]));
  }
  work.outputs.clear();
}

void Stage::keep_input_gradients(Work& work, const Tensors& gradients) {
  work.input_gradients.assign(work.handed.size(), at::Tensor());
  size_t next = 0;
  for (size_t i = 0; i < work.handed.size(); ++i) {
    if (work.handed[i].leaf.defined()) work.input_gradients[i] = gradients[next++];
  }
  work.handed.clear();
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
  now.loss.reset();
  now.given.clear();
}

void Stage::backward_input(int micro_batch) {
  Work& now = work(micro_batch);
  if (!has_backward(now)) return;
  Tensors roots, gradients, inputs;
  collect_roots(now, roots, gradients);
  for (const HandedIn& handed : now.handed) {
    if (handed.leaf.defined()) inputs.push_back(handed.leaf);
  }
  now.split.emplace(std::move(roots), inputs, leaves_);
  keep_input_gradients(now, now.split->input_part(gradients));
  now.loss.reset();
  now.given.clear();
}

void Stage::backward_weight(int micro_batch) {
  Work& now = work(micro_batch);
  begin_weight_part(now);
  if (!now.split) return;
  now.split->weight_part();
  now.split.reset();
}

Parcel Stage::gradient_for(int micro_batch, int to) {
  Work& now = work(micro_batch);
  Parcel parcel;
  const size_t place = place_of(wiring_.in, to);
  if (wiring_.in[place].chain) {
    parcel.loss_sum = now.loss_sum;
    parcel.weight = now.weight;
  }
  if (now.input_gradients.empty()) return parcel;  // no backward: an empty micro-batch, or a loss gone wrong
  if (wiring_.in[place].chain) {
    std::move(now.input_gradients.begin(),
              now.input_gradients.begin() + static_cast<ptrdiff_t>(now.chain_inputs),
              std::back_inserter(parcel.tensors));
  }
  size_t first = now.chain_inputs;  // the imports stand behind them, edge by edge
  for (size_t e = 0; e < place; ++e) first += wiring_.in[e].skips.size();
  for (size_t i = 0; i < wiring_.in[place].skips.size(); ++i) {
    parcel.tensors.push_back(std::move(now.input_gradients[first + i]));
  }
  return parcel;
}

NonFinite Stage::find_bad_number(int micro_batch) {
  Work& now = work(micro_batch);
  BatchNormLog ignored(model_);
  const StepScope same_noise(context_of(*now.batch, &ignored));
  const Bf16Scope precision(setting_.options.bf16);
  Batch of_stage = *now.batch;
  of_stage.inputs = now.given;
  if (of_stage.inputs.empty()) {
    for (const HandedIn& handed : now.handed) of_stage.inputs.push_back(hand_out(handed.input));
  }
  if (!is_last()) of_stage.target = at::Tensor();
  return find_non_finite(model_, of_stage);
}

Tensors Stage::outputs(int micro_batch) { return std::move(work(micro_batch).outputs); }

}  // namespace troika
