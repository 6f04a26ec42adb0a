#include "troika/train/loss.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/huber_loss.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/mse_loss.h>

#include "troika/base/error.h"

namespace troika {

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
  const std::string type(name_of(dataset.column(target).type));
  switch (plan.kind) {
    case TargetKind::number:
      if (name.empty() || name == "mse") return LossKind::mse;
      if (name == "mae") return LossKind::mae;
      if (name == "huber") return LossKind::huber;
      fail_usage(
          "train.loss = \"{}\" needs classes, but data.target \"{}\" is of type {}; use mse, mae or huber",
          name, target, type);
    case TargetKind::binary:
      if (name.empty() || name == "binary_cross_entropy") return LossKind::binary_cross_entropy;
      if (name == "cross_entropy") return LossKind::cross_entropy;
      fail_usage(
          "train.loss = \"{}\" needs a number, but data.target \"{}\" is of type {} with 2 classes; use "
          "binary_cross_entropy, or choose another target",
          name, target, type);
    case TargetKind::classes:
      if (name.empty() || name == "cross_entropy") return LossKind::cross_entropy;
      fail_usage(
          "train.loss = \"{}\" needs {}, but data.target \"{}\" is of type {} with {} classes; use "
          "cross_entropy, or choose another target",
          name, name == "binary_cross_entropy" ? "two classes" : "a number", target, type,
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
    const auto weight = static_cast<double>(batch.samples);
    const double each = 1.0 / static_cast<double>(output.size(1));
    switch (kind) {
      case LossKind::mse: {
        at::Tensor sum = at::mse_loss(output, batch.target, at::Reduction::Sum);
        return {output.size(1) == 1 ? sum : sum.mul(each), weight};
      }
      case LossKind::mae: {
        at::Tensor sum = at::l1_loss(output, batch.target, at::Reduction::Sum);
        return {output.size(1) == 1 ? sum : sum.mul(each), weight};
      }
      case LossKind::huber: {
        at::Tensor sum = at::huber_loss(output, batch.target, at::Reduction::Sum, 1.0);
        return {output.size(1) == 1 ? sum : sum.mul(each), weight};
      }
      case LossKind::binary_cross_entropy:
        return {at::binary_cross_entropy_with_logits(output, batch.target, {}, {}, at::Reduction::Sum),
                weight};
      case LossKind::cross_entropy:
        return {at::cross_entropy_loss(output, batch.target, {}, at::Reduction::Sum), weight};
    }
    return {};
  };
}

}  // namespace troika
