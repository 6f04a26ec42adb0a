#include "troika/train/loss.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/huber_loss.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/mse_loss.h>

#include "troika/base/error.h"

namespace troika {
namespace {

at::Tensor elements(LossKind kind, const at::Tensor& output, const at::Tensor& target, int64_t reduction) {
  switch (kind) {
    case LossKind::mse:
      return at::mse_loss(output, target, reduction);
    case LossKind::mae:
      return at::l1_loss(output, target, reduction);
    case LossKind::huber:
      return at::huber_loss(output, target, reduction, 1.0);
    case LossKind::binary_cross_entropy:
      return at::binary_cross_entropy_with_logits(output, target, {}, {}, reduction);
    case LossKind::cross_entropy:
      // [n, classes], or of tokens [n, tokens, classes].
      return at::cross_entropy_loss(output.dim() > 2 ? output.flatten(0, 1) : output, target.flatten(), {},
                                    reduction);
  }
  TROIKA_ASSERT(false, "a loss without a formula");
}

}  // namespace

const char* name_of(LossKind kind) {
  switch (kind) {
    case LossKind::mse:
      return "mse";
    case LossKind::mae:
      return "mae";
    case LossKind::huber:
      return "huber";
    case LossKind::binary_cross_entropy:
      return "binary_cross_entropy";
    case LossKind::cross_entropy:
      return "cross_entropy";
  }
  return "";
}

LossKind choose_loss(const std::string& name, const FeaturePlan& plan, const Dataset& dataset) {
  const std::string& target = plan.targets[0].column;
  // For messages only: a dataset to predict for may lack the target.
  const auto type = [&] { return name_of(dataset.column(target).type); };
  switch (plan.kind) {
    case TargetKind::number:
      if (name.empty() || name == "mse") return LossKind::mse;
      if (name == "mae") return LossKind::mae;
      if (name == "huber") return LossKind::huber;
      fail_usage(
          "train.loss = \"{}\" needs classes, but data.target \"{}\" is of type {}; use mse, mae or huber",
          name, target, type());
    case TargetKind::binary:
      if (name.empty() || name == "binary_cross_entropy") return LossKind::binary_cross_entropy;
      if (name == "cross_entropy") return LossKind::cross_entropy;
      fail_usage(
          "train.loss = \"{}\" needs a number, but data.target \"{}\" is of type {} with 2 classes; use "
          "binary_cross_entropy, or choose another target",
          name, target, type());
    case TargetKind::classes:
    case TargetKind::tokens:
      if (name.empty() || name == "cross_entropy") return LossKind::cross_entropy;
      fail_usage(
          "train.loss = \"{}\" needs {}, but data.target \"{}\" is of type {} with {} classes; use "
          "cross_entropy, or choose another target",
          name, name == "binary_cross_entropy" ? "two classes" : "a number", target, type(),
          plan.targets[0].classes.size());
  }
  TROIKA_ASSERT(false, "a target kind without a loss");
}

int64_t output_width(LossKind kind, const FeaturePlan& plan) {
  if (kind == LossKind::cross_entropy) return static_cast<int64_t>(plan.targets[0].classes.size());
  return plan.target_width();
}

Loss make_loss(LossKind kind) {
  return [kind](const Tensors& outputs, const Batch& batch) -> LossValue {
    const at::Tensor& output = outputs.at(0);
    if (!batch.weights.defined()) {
      const at::Tensor sum = elements(kind, output, batch.target, at::Reduction::Sum);
      // Classes have one loss a sample or token, whatever the width; numbers of one sample are averaged.
      if (kind == LossKind::cross_entropy) return {sum, static_cast<double>(batch.target.numel())};
      const bool several = output.size(1) > 1;
      return {several ? sum.mul(1.0 / static_cast<double>(output.size(1))) : sum,
              static_cast<double>(batch.samples)};
    }
    TROIKA_ASSERT(output.dim() == 2, "tokens have no weights");
    at::Tensor each = elements(kind, output, batch.target, at::Reduction::None);
    if (each.dim() > 1) each = each.flatten(1).mean(1);
    // The divisor is summed in double, so that it doesn't matter how a batch was cut.
    return {each.mul(batch.weights.to(each.scalar_type())).sum(),
            batch.weights.sum(at::kDouble).item<double>()};
  };
}

}  // namespace troika
