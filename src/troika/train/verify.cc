#include "troika/train/verify.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "troika/parallel/micro_batched_reference.h"
#include "troika/parallel/named_gather.h"
#include "troika/parallel/recompute.h"
#include "troika/train/verify_cause.h"
#include "troika/train/verify_comparison.h"
#include "troika/train/verify_delayed.h"
#include "troika/train/verify_pieces.h"
#include "troika/train/verify_plain.h"
#include "troika/train/verify_rounding.h"
#include "troika/train/verify_slices.h"

namespace troika {
namespace {

void name_swapped_slices(const VerifyWork& work, const StepRecord& record, const PlainReference& plain,
                         Difference& first) {
  const auto at =
      static_cast<size_t>(std::ranges::find(plain.names(), first.parameter) - plain.names().begin());
  const Cause cause =
      cause_of_initial_slices(work, first.parameter, record.weights_before[0][at], plain.weights()[at]);
  if (!cause.is_known()) return;
  first.likely_cause = cause.name;
  first.detail = cause.detail;
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
    if (record.step == 1) {
      comparison.initial_weights(record, plain.weights());
      if (comparison.found()) name_swapped_slices(work, record, plain, *comparison.first());
    }
    PlainReference::Step step =
        plain.step(record.step - 1, record.weights_before[0], record.buffers_before[0]);
    const double clip = work.options.clip_norm, norm = step.grad_norm;
    std::vector<at::Tensor> allowed = rounding.step(
        record.gradients, step.gradients, clip > 0 && norm > clip ? clip / norm : 1,
        work.learning_rate ? work.learning_rate(record.step - 1) : work.options.optimizer.learning_rate);
    comparison.step(record, {step.loss, norm, std::move(step.gradients), plain.weights(), plain.buffers(),
                             std::move(allowed)});
    if (comparison.found() && !found_before && comparison.first()->likely_cause == "unknown") {
      Difference& first = *comparison.first();
      const Cause cause = find_cause(work, first, record, before_last, plain, cause_tolerance(precision));
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
  const std::vector<std::string> names = names_of(reference.parameters());
  const std::vector<std::string> buffer_names = names_of(reference.others());
  VerifyResult differences;  // its maxima are not those of the plain comparison
  Comparison comparison(differences, 0, names, buffer_names);
  engine(work, work.options.dtype, [&](const StepRecord& record) {
    reference.set_weights(record.weights_before[0]);
    reference.set_others(record.buffers_before[0]);
    if (work.learning_rate) reference.set_learning_rate(work.learning_rate(record.step - 1));
    std::vector<at::Tensor> gradients;
    const NoRecompute keeping_everything;
    const StepResult step =
        reference.step(pieces_of_ranks(work, record.step - 1, work.options.dtype), work.loss, &gradients);
    comparison.step(record, {step.loss, step.grad_norm, std::move(gradients),
                             tensors_of(reference.parameters()), tensors_of(reference.others())});
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
  VerifyWork exact = work;  // a plain run in bfloat16 would differ by its rounding
  exact.options.bf16 = false;
  const bool sliced = work.options.mesh.tensor > 1;
  std::optional<Difference> within, bits;
  if (work.options.pipeline && work.options.pipeline->window) {
    result.reference = "delayed";
    within = compare_with_delayed(exact, precision, engine, result);
    VerifyResult differences;  // its maxima are not those of the first comparison
    bits = sliced ? compare_with_slices(work, engine)
                  : compare_with_delayed(work, work.options.dtype, engine, differences);
  } else {
    within = compare_with_plain(exact, precision, engine, result);
    bits = sliced ? compare_with_slices(work, engine) : compare_with_micro_batched(work, engine);
  }
  result.equal = !within;
  result.bitwise = !bits;
  result.first_difference = within ? within : bits;
  return result;
}

}  // namespace troika
