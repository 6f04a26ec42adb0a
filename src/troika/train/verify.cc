#include "troika/train/verify.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "troika/base/error.h"
#include "troika/parallel/micro_batched_reference.h"
#include "troika/parallel/recompute.h"
#include "troika/train/verify_cause.h"
#include "troika/train/verify_comparison.h"
#include "troika/train/verify_delayed.h"
#include "troika/train/verify_pieces.h"
#include "troika/train/verify_plain.h"
#include "troika/train/verify_rounding.h"

namespace troika {
namespace {

// Of the cause's prediction; far above rounding in either precision, far below any real mistake.
constexpr double kCauseTolerance64 = 1e-8, kCauseTolerance32 = 1e-4;

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
  const std::vector<std::string> buffer_names = plain.buffer_names();
  Comparison comparison(result, result.tolerance, plain.names(), buffer_names);
  UpdateRounding rounding(work.options.optimizer);
  std::vector<at::Tensor> before_last;
  engine(work, precision, [&](const StepRecord& record) {
    const bool found_before = comparison.found();
    if (record.step == 1) compare_initial_weights(record, plain.weights(), comparison);
    const PlainReference::Step step =
        plain.step(record.step - 1, record.weights_before[0], record.buffers_before[0]);
    comparison.loss(record.step, record.loss, step.loss);
    comparison.tensors(record.step, "gradients", record.gradients, step.gradients);
    comparison.number(record.step, "grad_norm", record.grad_norm, step.grad_norm);
    const double clip = work.options.clip_norm, norm = step.grad_norm;
    const std::vector<at::Tensor> allowed = rounding.step(
        record.gradients, step.gradients, clip > 0 && norm > clip ? clip / norm : 1,
        work.learning_rate ? work.learning_rate(record.step - 1) : work.options.optimizer.learning_rate);
    for (const auto& weights : record.weights_after) {
      comparison.tensors(record.step, "weights", weights, plain.weights(), allowed);
    }
    for (const auto& buffers : record.buffers) {
      comparison.tensors(record.step, "buffers", buffers, plain.buffers());
    }
    if (comparison.found() && !found_before && comparison.first()->likely_cause == "unknown") {
      Difference& first = *comparison.first();
      const double tolerance = precision == at::kDouble ? kCauseTolerance64 : kCauseTolerance32;
      const Cause cause = find_cause(work, first, record, before_last, plain, tolerance);
      first.likely_cause = cause.name;
      first.detail = cause.detail;
    }
    before_last = record.weights_before[0];
  });
  return comparison.first();
}

// Bit for bit: tolerance 0, the recipe's precision, the engine's own update.
std::optional<Difference> compare_with_micro_batched(const VerifyWork& work, const Engine& engine) {
  MicroBatchedReference reference(work.layers, work.options, work.ranks);
  std::vector<std::string> names;
  std::vector<std::string> buffer_names;
  for (const NamedTensor& named : reference.parameters()) names.push_back(named.name);
  for (const NamedTensor& named : reference.others()) buffer_names.push_back(named.name);
  VerifyResult differences;  // its maxima are not those of the plain comparison
  Comparison comparison(differences, 0, names, buffer_names);
  engine(work, work.options.dtype, [&](const StepRecord& record) {
    std::vector<std::vector<Batch>> pieces;
    for (int rank = 0; rank < work.ranks; ++rank) {
      pieces.push_back(pieces_of_rank(work, record.step - 1, rank, work.options.dtype));
    }
    reference.set_weights(record.weights_before[0]);
    reference.set_others(record.buffers_before[0]);
    if (work.learning_rate) reference.set_learning_rate(work.learning_rate(record.step - 1));
    std::vector<at::Tensor> gradients;
    const NoRecompute keeping_everything;
    const StepResult step = reference.step(pieces, work.loss, &gradients);
    comparison.loss(record.step, record.loss, step.loss);
    comparison.tensors(record.step, "gradients", record.gradients, gradients);
    comparison.number(record.step, "grad_norm", record.grad_norm, step.grad_norm);
    for (const auto& weights : record.weights_after) {
      comparison.tensors(record.step, "weights", weights, tensors_of(reference.parameters()));
    }
    for (const auto& buffers : record.buffers) {
      comparison.tensors(record.step, "buffers", buffers, tensors_of(reference.others()));
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
  if (work.options.pipeline && work.options.pipeline->window) return verify_delayed(work, precision, engine);
  VerifyResult result;
  result.tolerance = precision == at::kDouble ? 1e-10 : 1e-5;
  VerifyWork exact = work;  // a plain run in bfloat16 would differ by its rounding
  exact.options.bf16 = false;
  const std::optional<Difference> from_plain = compare_with_plain(exact, precision, engine, result);
  const std::optional<Difference> from_pieces = compare_with_micro_batched(work, engine);
  result.equal = !from_plain;
  result.bitwise = !from_pieces;
  result.first_difference = from_plain ? from_plain : from_pieces;
  return result;
}

}  // namespace troika
