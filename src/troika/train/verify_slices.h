// The reference that a run on tensor ranks must equal bit for bit: a program without data or pipeline ranks
// that has the same slices, one thread for each. (That slices equal the whole is the plain reference's
// matter: a sum over slices is not bit for bit the whole sum.) Threading: starts threads itself.
#pragma once

#include "troika/parallel/tensor/tensor_plan.h"
#include "troika/train/verify.h"

namespace troika {

/// How the work's layers are split: as its options say, else as the engine plans by itself.
TensorPlan tensor_plan_of(const VerifyWork& work);

/// Runs the engine, then the reference on what it recorded.
std::optional<Difference> compare_with_slices(const VerifyWork& work, const Engine& engine);

}  // namespace troika
