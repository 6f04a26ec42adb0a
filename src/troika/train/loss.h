// Which loss fits which target, and the losses themselves: sums over samples with their weight
// (semantics.md). Threading: pure functions; a Loss may be copied to and used from any thread.
#pragma once

#include <string>

#include "troika/parallel/replica.h"
#include "troika/train/encoder.h"

namespace troika {

enum class LossKind { mse, mae, huber, binary_cross_entropy, cross_entropy };
const char* name_of(LossKind kind);

/// `name` as in a recipe, "" for the target's own: mse for numbers, binary_cross_entropy for two classes,
/// cross_entropy for more. Throws UsageError naming the target's type and what would fit.
LossKind choose_loss(const std::string& name, const FeaturePlan& plan, const Dataset& dataset);

/// How many numbers the model must give per sample, or per token.
int64_t output_width(LossKind kind, const FeaturePlan& plan);

/// Outputs [n, width], of tokens [n, tokens, width], against Batch::target. The weight of tokens is their
/// number, so that their loss is the mean over tokens. For several numbers (targets, or steps ahead) a
/// sample's loss is the mean over them. Batch::weights multiply each sample's loss, and LossValue::weight is
/// their sum (else the number of samples), so that the quotient of sums over pieces is the weighted mean.
/// huber turns linear at 1 (one deviation of the target, which is standardised).
Loss make_loss(LossKind kind);

}  // namespace troika
