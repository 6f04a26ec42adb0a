#include "troika/train/verify.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "troika/base/error.h"
#include "troika/parallel/micro_batched_reference.h"
#include "troika/train/plain.h"
#include "troika/train/verify_cause.h"
#include "troika/train/verify_pieces.h"

namespace troika {
namespace {

// Of the cause's prediction; far above rounding in either precision, far below any real mistake.
constexpr double kCauseTolerance64 = 1e-8, kCauseTolerance32 = 1e-4;

std::vector<at::Tensor> tensors_of(const std::vector<NamedTensor>& named) {
  std::vector<at::Tensor> out;
  for (const NamedTensor& n : named) out.push_back(n.tensor);
  return out;
}

double largest(const at::Tensor& t) { return t.numel() == 0 ? 0 : t.abs().max().item<double>(); }

double factor_of(const at::Tensor& x, const at::Tensor& y) {
  const at::Tensor y64 = y.to(at::kDouble);
  const double norm = (y64 * y64).sum().item<double>();
  return norm > 0 ? (x.to(at::kDouble) * y64).sum().item<double>() / norm : 0;
}

/// Compares one side's tensors with the other's, kind by kind, and keeps the first difference.
class Comparison {
 public:
  Comparison(VerifyResult& result, double tolerance, const std::vector<std::string>& names)
      : result_(result), tolerance_(tolerance), names_(names) {}

  void loss(int64_t step, double x, double y) {
    ++result_.losses;
    judge(step, "loss", "", at::scalar_tensor(x, at::kDouble), at::scalar_tensor(y, at::kDouble),
          std::abs(y));
  }

  void tensors(int64_t step, const std::string& what, const std::vector<at::Tensor>& x,
               const std::vector<at::Tensor>& y) {
    TROIKA_ASSERT(x.size() == y.size(), what);
    double scale = 0;
    for (const at::Tensor& t : y) scale = std::max(scale, largest(t));
    for (size_t i = 0; i < x.size(); ++i) {
      const std::string name = what == "buffers" ? fmt::format("buffer {}", i) : names_[i];
      judge(step, what, name, x[i], y[i], std::max(largest(y[i]), 1e-3 * scale));
    }
    (what == "gradients" ? result_.gradients
     : what == "weights" ? result_.weights
                         : result_.buffers) += static_cast<int64_t>(x.size());
  }

  bool found() const { return first_.has_value(); }
  std::optional<Difference>& first() { return first_; }

 private:
  void judge(int64_t step, const std::string& what, const std::string& name, const at::Tensor& x,
             const at::Tensor& y, double scale) {
    if (x.numel() == 0) return;
    const double difference = largest(x.to(at::kDouble) - y.to(at::kDouble));
    const double relative = scale > 0 ? difference / scale : difference;
    result_.max_abs_diff = std::max(result_.max_abs_diff, difference);
    result_.max_rel_diff = std::max(result_.max_rel_diff, relative);
    const bool equal = relative <= tolerance_;  // false for NaN
    if (!equal && !first_) first_ = Difference{step, what, name, factor_of(x, y), "unknown"};
  }

  VerifyResult& result_;
  double tolerance_;
  const std::vector<std::string>& names_;
  std::optional<Difference> first_;
};

/// The plain run, and the pieces' own gradients by plain code when a cause is looked for.
class PlainReference {
 public:
  PlainReference(const VerifyWork& work, at::ScalarType dtype)
      : work_(work),
        dtype_(dtype),
        model_(work.layers, work.options.seed, dtype),
        run_(tensors_of(model_.parameters()), plain_optimizer(work.options.optimizer)) {
    for (const NamedTensor& named : model_.parameters()) names.push_back(named.name);
  }

  double step(int64_t step, const std::vector<at::Tensor>& weights) {
    run_.set_weights(weights);
    const Batch batch = work_.batch(step, {0, work_.batch_size(step)}, dtype_);
    return run_.step([&] {
      const LossValue value = work_.loss(model_.forward(batch.inputs), batch);
      return value.sum / value.weight;
    });
  }

  std::vector<at::Tensor> gradients() const { return run_.gradients(); }
  const std::vector<at::Tensor>& weights() const { return run_.parameters(); }
  std::vector<at::Tensor> buffers() const { return tensors_of(model_.others()); }

  /// The mean gradient of a step's batch at other weights.
  std::vector<at::Tensor> gradients_at(int64_t step, const std::vector<at::Tensor>& weights) {
    run_.set_weights(weights);
    const Batch batch = work_.batch(step, {0, work_.batch_size(step)}, dtype_);
    const LossValue value = work_.loss(model_.forward(batch.inputs), batch);
    return plain_gradients(value.sum / value.weight, run_.parameters());
  }

  /// Per piece: the loss (index 0), then each parameter's gradient.
  std::vector<PieceValues> pieces_at(int64_t step, const std::vector<at::Tensor>& weights) {
    run_.set_weights(weights);
    std::vector<PieceValues> out(1 + names.size());
    for (int rank = 0; rank < work_.ranks; ++rank) {
      for (PieceValues& values : out) {
        values.sums.emplace_back();
        values.weights.emplace_back();
      }
      for (const Batch& piece : pieces_of_rank(work_, step, rank, dtype_)) add_piece(piece, out);
    }
    return out;
  }

  std::vector<std::string> names;

 private:
  void add_piece(const Batch& piece, std::vector<PieceValues>& out) {
    std::vector<at::Tensor> values{at::scalar_tensor(0.0, at::kDouble)};
    double weight = 0;
    if (piece.samples > 0) {
      const LossValue loss = work_.loss(model_.forward(piece.inputs), piece);
      weight = loss.weight;
      values[0] = loss.sum.detach();
      for (at::Tensor& g : plain_gradients(loss.sum, run_.parameters())) values.push_back(g);
    } else {
      for (const at::Tensor& p : run_.parameters()) values.push_back(at::zeros_like(p.detach()));
    }
    for (size_t i = 0; i < out.size(); ++i) {
      out[i].sums.back().push_back(values[i]);
      out[i].weights.back().push_back(weight);
    }
  }

  const VerifyWork& work_;
  at::ScalarType dtype_;
  Model model_;
  PlainRun run_;
};

bool close(const at::Tensor& x, const at::Tensor& y, double tolerance) {
  return largest(x.to(at::kDouble) - y.to(at::kDouble)) <= tolerance * std::max(largest(x), largest(y));
}

std::string find_cause(const Difference& first, const StepRecord& record,
                       const std::vector<at::Tensor>& before_last, PlainReference& plain, double tolerance) {
  const std::vector<at::Tensor>& before = record.weights_before[0];
  const std::vector<PieceValues> pieces = plain.pieces_at(record.step - 1, before);
  if (first.what == "loss") {
    return cause_from_pieces(at::scalar_tensor(record.loss, at::kDouble), pieces[0], tolerance);
  }
  const auto at = std::find(plain.names.begin(), plain.names.end(), first.parameter);
  if (at == plain.names.end()) return "unknown";
  const auto i = static_cast<size_t>(at - plain.names.begin());
  if (first.what != "gradients") return "unknown";
  const std::string cause = cause_from_pieces(record.gradients[i], pieces[1 + i], tolerance);
  if (cause != "unknown") return cause;
  for (const auto* weights : {&before_last, &record.weights_after[0]}) {
    if (weights->empty()) continue;
    if (close(record.gradients[i], plain.gradients_at(record.step - 1, *weights)[i], tolerance)) {
      return "stale_or_new_weights";
    }
  }
  return "unknown";
}

// Every rank must start from the numbers that the seed gives.
void compare_initial_weights(const StepRecord& record, const std::vector<at::Tensor>& expected,
                             Comparison& comparison) {
  for (const auto& weights : record.weights_before) {
    comparison.tensors(0, "weights", weights, expected);
    if (comparison.found()) {
      comparison.first()->likely_cause = "initial_weights";
      return;
    }
  }
}

std::optional<Difference> compare_with_plain(const VerifyWork& work, at::ScalarType precision,
                                             const Engine& engine, VerifyResult& result) {
  PlainReference plain(work, precision);
  Comparison comparison(result, result.tolerance, plain.names);
  std::vector<at::Tensor> before_last;
  engine(work, precision, [&](const StepRecord& record) {
    const bool found_before = comparison.found();
    if (record.step == 1) compare_initial_weights(record, plain.weights(), comparison);
    const double loss = plain.step(record.step - 1, record.weights_before[0]);
    comparison.loss(record.step, record.loss, loss);
    comparison.tensors(record.step, "gradients", record.gradients, plain.gradients());
    for (const auto& weights : record.weights_after) {
      comparison.tensors(record.step, "weights", weights, plain.weights());
    }
    for (const auto& buffers : record.buffers) {
      comparison.tensors(record.step, "buffers", buffers, plain.buffers());
    }
    if (comparison.found() && !found_before && comparison.first()->likely_cause == "unknown") {
      Difference& first = *comparison.first();
      const double tolerance = precision == at::kDouble ? kCauseTolerance64 : kCauseTolerance32;
      first.likely_cause = find_cause(first, record, before_last, plain, tolerance);
    }
    before_last = record.weights_before[0];
  });
  return comparison.first();
}

// Bit for bit: tolerance 0, the recipe's precision, the engine's own update.
std::optional<Difference> compare_with_micro_batched(const VerifyWork& work, const Engine& engine) {
  MicroBatchedReference reference(work.layers, work.options, work.ranks);
  std::vector<std::string> names;
  for (const NamedTensor& named : reference.parameters()) names.push_back(named.name);
  VerifyResult differences;  // its maxima are not those of the plain comparison
  Comparison comparison(differences, 0, names);
  engine(work, work.options.dtype, [&](const StepRecord& record) {
    std::vector<std::vector<Batch>> pieces;
    for (int rank = 0; rank < work.ranks; ++rank) {
      pieces.push_back(pieces_of_rank(work, record.step - 1, rank, work.options.dtype));
    }
    reference.set_weights(record.weights_before[0]);
    at::Tensor gradients;
    const StepResult step = reference.step(pieces, work.loss, &gradients);
    comparison.loss(record.step, record.loss, step.loss);
    comparison.tensors(record.step, "gradients", record.gradients,
                       unflatten(gradients, reference.parameters()));
    for (const auto& weights : record.weights_after) {
      comparison.tensors(record.step, "weights", weights, tensors_of(reference.parameters()));
    }
  });
  return comparison.first();
}

}  // namespace

PlainOptimizer plain_optimizer(const Optimizer& o) {
  PlainOptimizer out;
  switch (o.kind) {
    case Optimizer::Kind::sgd:
      out.name = "sgd";
      break;
    case Optimizer::Kind::adam:
      out.name = "adam";
      break;
    case Optimizer::Kind::adamw:
      out.name = "adamw";
      break;
  }
  out.learning_rate = o.learning_rate;
  out.weight_decay = o.weight_decay;
  out.momentum = o.momentum;
  out.nesterov = o.nesterov;
  out.beta1 = o.beta1;
  out.beta2 = o.beta2;
  out.epsilon = o.epsilon;
  return out;
}

VerifyResult verify(const VerifyWork& work, at::ScalarType precision, const Engine& engine) {
  VerifyResult result;
  result.tolerance = precision == at::kDouble ? 1e-10 : 1e-5;
  const std::optional<Difference> from_plain = compare_with_plain(work, precision, engine, result);
  const std::optional<Difference> from_pieces = compare_with_micro_batched(work, engine);
  result.equal = !from_plain;
  result.bitwise = !from_pieces;
  result.first_difference = from_plain ? from_plain : from_pieces;
  return result;
}

}  // namespace troika
