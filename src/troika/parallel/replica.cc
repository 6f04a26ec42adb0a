#include "troika/parallel/replica.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "troika/base/error.h"
#include "troika/parallel/batch_norm.h"
#include "troika/parallel/bf16.h"
#include "troika/parallel/generator_watch.h"
#include "troika/parallel/gradient_sync.h"
#include "troika/parallel/non_finite.h"
#include "troika/parallel/replica_state.h"
#include "troika/parallel/step_context.h"
#include "troika/parallel/step_math.h"

namespace troika {
namespace {

// Layers that draw random numbers show it at once; from then on looking costs more than it finds.
constexpr int kWatchedForwards = 2;

PlacedModel place(Communicator& communicator, const std::vector<Layer>& layers,
                  const ReplicaOptions& options) {
  const bool replicated = options.weights == WeightPlacement::replicated && communicator.size() > 1;
  return replicated ? place_replicated_weights(communicator, layers, options)
                    : place_shared_weights(communicator, layers, options);
}

/// Records one action, if someone looks.
class SpanScope {
 public:
  SpanScope(const StepProbe& probe, int rank, Op op, size_t micro_batch = 0)
      : probe_(probe), rank_(rank), action_{op, 0, static_cast<int>(micro_batch)} {
    if (probe_.spans != nullptr) start_ = seconds_since(probe_.spans_from);
  }
  ~SpanScope() {
    if (probe_.spans != nullptr) {
      probe_.spans->push_back({rank_, action_, start_, seconds_since(probe_.spans_from)});
    }
  }
  SpanScope(const SpanScope&) = delete;
  SpanScope& operator=(const SpanScope&) = delete;

 private:
  const StepProbe& probe_;
  int rank_;
  Action action_;
  double start_ = 0;
};

}  // namespace

struct Replica::State {
  State(Communicator& c, const std::vector<Layer>& layers, const ReplicaOptions& o)
      : communicator(c), options(o), placed(place(c, layers, o)), statistics(*placed.model) {}

  Communicator& communicator;
  ReplicaOptions options;
  PlacedModel placed;
  BatchNormLog statistics;                // of the step under way
  std::vector<NamedTensor> parameters;    // views of the flat buffer
  std::vector<int64_t> optimizer_steps;   // by parameter: a step that leaves it out doesn't count
  std::string batch_norm, instance_norm;  // the first layer that keeps statistics of its kind
  int64_t steps = 0;
  int watched = 0;

  const Model& model() const { return *placed.model; }
  GradientSync& sync() const { return *placed.sync; }

  /// The step under way, and where its samples are in the global batch.
  StepContext context_of(const Batch& batch) {
    StepContext context = troika::context_of(options, batch, steps + 1, &statistics);
    context.ranks = communicator.size();
    return context;
  }

  Tensors forward(const Batch& batch) {
    const StepScope step(context_of(batch));
    const Bf16Scope precision(options.bf16);
    if (communicator.size() == 1 || watched >= kWatchedForwards) {
      return without_bf16(model().forward(batch.inputs));
    }
    ++watched;
    return without_bf16(forward_watched(model(), batch.inputs, communicator.size()));
  }

  void refuse_instance_norm(size_t pieces) const;
  bool run_piece(const Batch& batch, size_t index, bool is_last, const Loss& loss, const StepProbe& probe,
                 StepNumbers& numbers);
  [[noreturn]] void fail_for_loss(int bad_rank, std::optional<size_t> bad_piece,
                                  std::span<const Batch> pieces);
  double scale_of_clipping(double weight, double& grad_norm);
  StepResult update(const Totals& totals, const StepProbe& probe);
};

void Replica::State::refuse_instance_norm(size_t pieces) const {
  if (instance_norm.empty() || pieces <= 1) return;
  fail_usage(
      "layer \"{}\" is an InstanceNorm with running statistics, which would follow each of the {} pieces "
      "of a batch by itself: make it without track_running_stats, or use one rank and one micro-batch",
      instance_norm, pieces);
}

// Forward, loss, backward. False if the loss isn't finite: then there is no backward.
bool Replica::State::run_piece(const Batch& batch, size_t index, bool is_last, const Loss& loss,
                               const StepProbe& probe, StepNumbers& numbers) {
  const int64_t version = sync().weight_version();
  LossValue value;
  {
    const SpanScope span(probe, communicator.rank(), Op::forward, index);
    communicator.say("forward", steps + 1);
    value = checked_loss(loss, forward(batch), batch);
    const double sum = value.sum.item<double>();
    numbers.loss_sum += sum;
    numbers.weight += value.weight;
    if (!std::isfinite(sum)) return false;
  }
  const SpanScope span(probe, communicator.rank(), Op::backward, index);
  communicator.say("backward", steps + 1);
  if (is_last) sync().begin_last_backward();
  value.sum.backward();
  TROIKA_ASSERT(sync().weight_version() == version,
                "weights were written between a forward and its backward");
  return true;
}

// The first bad rank looks for the place and tells the others, so that all say the same.
void Replica::State::fail_for_loss(int bad_rank, std::optional<size_t> bad_piece,
                                   std::span<const Batch> pieces) {
  std::array<int64_t, 3> place{};
  if (communicator.rank() == bad_rank) {
    const size_t piece = bad_piece.value_or(0);
    const StepScope same_noise(context_of(pieces[piece]));
    const Bf16Scope precision(options.bf16);
    const NonFinite found = find_non_finite(model(), pieces[piece]);
    place = {static_cast<int64_t>(found.where), found.index, static_cast<int64_t>(piece)};
  }
  if (communicator.size() > 1) communicator.broadcast({place.data(), 3, ElementType::int64}, bad_rank);
  sync().discard();
  const NonFinite found{static_cast<NonFinite::Where>(place[0]), place[1]};
  fail(
      "step {}: the loss is not finite (rank {}, micro-batch {}); the first number that isn't is in {}. No "
      "weight was "
      "changed. Try a smaller learning rate, or look for such values in the data",
      steps + 1, bad_rank, place[2], describe(found, model()));
}

// Before any weight is written, so that a gradient that isn't finite changes none.
double Replica::State::scale_of_clipping(double weight, double& grad_norm) {
  if (options.clip_norm == 0) return 1;
  communicator.say("norm of the gradient", steps + 1);
  const GradientNorm found = sync().norm(weight);
  if (found.first_bad >= 0) {
    sync().discard();
    fail(
        "step {}: the loss is finite but the gradient of parameter \"{}\" is not. No weight was changed. "
        "Try a smaller learning rate, or look for very large values in the data",
        steps + 1, parameters[static_cast<size_t>(found.first_bad)].name);
  }
  grad_norm = found.norm;
  return clip_scale(found.norm, options.clip_norm);
}

StepResult Replica::State::update(const Totals& totals, const StepProbe& probe) {
  StepResult result{totals.loss_sum / totals.weight, totals.weight};
  const double scale = scale_of_clipping(totals.weight, result.grad_norm);
  for (size_t i = 0; i < optimizer_steps.size(); ++i) optimizer_steps[i] += sync().touched()[i];
  const Update update{options.optimizer,        optimizer_steps,      totals.weight,
                      totals.anyone_wants_mean, probe.mean_gradients, scale};
  {
    const SpanScope span(probe, communicator.rank(), Op::optimizer_step);
    communicator.say("optimizer step", steps + 1);
    sync().update(update);
  }
  const bool finite = sync().finish_update(update);
  ++steps;
  if (!finite) {
    const std::string name = first_non_finite_parameter(parameters);
    fail(
        "step {}: the loss is finite but the gradient of {} is not; the weights have been updated with it. "
        "Go on from "
        "a checkpoint before this step, with a smaller learning rate",
        steps, name.empty() ? "some parameter" : fmt::format("parameter \"{}\"", name));
  }
  result.waited_seconds = sync().take_waited();
  return result;
}

Replica::Replica(Communicator& communicator, const std::vector<Layer>& layers, const ReplicaOptions& options)
    : state_(std::make_unique<State>(communicator, layers, options)) {
  State& s = *state_;
  if (!(options.clip_norm >= 0)) {
    fail_usage("clip_norm is {}; it must be a number above 0, or 0 for no clipping", options.clip_norm);
  }
  s.parameters = views_of(s.sync().buffers().weights, s.sync().buffers().layout);
  s.optimizer_steps.assign(s.parameters.size(), 0);
  s.batch_norm = s.model().first_batch_norm();
  s.instance_norm = first_tracking_instance_norm(s.model());
  s.refuse_instance_norm(static_cast<size_t>(communicator.size()));
  if (communicator.size() > 1 && !s.batch_norm.empty() && options.batch_norm_group == 0) {
    fail_usage(
        "layer \"{}\" is a BatchNorm over the whole batch, and its samples are on {} ranks: set "
        "batch_norm_group, the number of samples that are normalised together and stay on one rank, or use "
        "LayerNorm or GroupNorm",
        s.batch_norm, communicator.size());
  }
}

Replica::~Replica() = default;

StepResult Replica::step(std::span<const Batch> pieces, const Loss& loss, const StepProbe& probe) {
  State& s = *state_;
  s.refuse_instance_norm(pieces.size());
  if (!s.batch_norm.empty()) check_batch_norm_pieces(s.batch_norm, pieces, s.options.batch_norm_group);
  const c10::AutoGradMode with_gradients(true);
  s.sync().begin_step();
  s.statistics.clear();
  s.sync().take_waited();  // what came before isn't this step's

  StepNumbers mine;
  mine.wants_mean = probe.mean_gradients != nullptr ? 1 : 0;
  size_t last = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].samples > 0) last = i;
  }
  std::optional<size_t> bad_piece;
  for (size_t i = 0; i < pieces.size() && !bad_piece; ++i) {
    if (pieces[i].samples == 0) continue;
    if (!s.run_piece(pieces[i], i, i == last, loss, probe, mine)) bad_piece = i;
  }
  std::span<const StepNumbers> ranks;
  {
    const SpanScope span(probe, s.communicator.rank(), Op::reduce_gradients);
    s.communicator.say("reduce gradients", s.steps + 1);
    ranks = s.sync().exchange(mine);
  }
  const Totals totals = total_of(ranks);
  if (totals.first_bad_rank >= 0) s.fail_for_loss(totals.first_bad_rank, bad_piece, pieces);
  if (totals.weight == 0) {
    s.sync().discard();
    if (probe.mean_gradients != nullptr) {
      *probe.mean_gradients = zero_flat(s.sync().buffers().layout, s.options.dtype);
    }
    StepResult none;
    none.waited_seconds = s.sync().take_waited();
    return none;
  }
  s.statistics.exchange(s.communicator);
  const StepResult result = s.update(totals, probe);
  // Last, so that a step that fails leaves the running statistics as they were.
  s.statistics.apply();
  return result;
}

void Replica::set_learning_rate(double learning_rate) {
  state_->options.optimizer.learning_rate = learning_rate;
}

Tensors Replica::evaluate(const Tensors& inputs) {
  const at::NoGradGuard no_grad;
  const Bf16Scope precision(state_->options.bf16);
  Model& model = *state_->placed.model;
  model.train(false);
  try {
    Tensors outputs = without_bf16(model.forward(inputs));
    model.train(true);
    return outputs;
  } catch (...) {
    model.train(true);
    throw;
  }
}

const std::vector<NamedTensor>& Replica::parameters() const { return state_->parameters; }
const std::vector<NamedTensor>& Replica::others() const { return state_->model().others(); }
int64_t Replica::steps_done() const { return state_->steps; }

std::vector<NamedTensor> Replica::state() const {
  return copy_state({state_->options.optimizer, state_->sync().buffers(), state_->optimizer_steps, others()});
}

void Replica::load_state(const std::vector<NamedTensor>& given, int64_t steps_done) {
  State& s = *state_;
  const StateParts parts{s.options.optimizer, s.sync().buffers(), s.optimizer_steps, others()};
  check_state(parts, given);
  const bool writes_weights = s.sync().begin_load();
  read_state(parts, given, writes_weights, s.optimizer_steps);
  s.sync().end_load();
  s.steps = steps_done;
}

}  // namespace troika
