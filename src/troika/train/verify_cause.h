// Which mistake makes this difference? Every known mistake of data-parallel training is a wrong weight on
// some piece's contribution; the pieces' own gradients are recomputed by the plain code, so each mistake
// predicts a tensor that the engine's can be compared with. Those of a pipeline are made by the plain run on
// purpose: a use of a tied parameter that is lost or counted twice, a skip without its gradient, a stage that
// computes with other weights. Pure functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "troika/train/verify.h"

namespace troika {

/// One value (a parameter's gradient, or the loss) of each piece, as the sum over its samples. Index:
/// [rank][piece].
struct PieceValues {
  std::vector<std::vector<at::Tensor>> sums;
  std::vector<std::vector<double>> weights;
};

struct Cause {
  std::string name = "unknown";  // as in Difference
  std::string detail;            // which part, for people; may be empty
  bool is_known() const { return name != "unknown"; }
};

/// sum_not_mean, unweighted_ragged, missing_contribution, double_contribution, micro_batch_scale or unknown.
/// `tolerance` is relative to the largest entry; each data rank is `lanes` ranks.
Cause cause_from_pieces(const at::Tensor& got, const PieceValues& pieces, double tolerance, int lanes = 1);

class PlainReference;

/// The cause of the first difference, found in `record`, whose step `plain` has just done. `before_last` are
/// the weights before the step before, or empty.
Cause find_cause(const VerifyWork& work, const Difference& first, const StepRecord& record,
                 const std::vector<at::Tensor>& before_last, PlainReference& plain, double tolerance);

/// Of tensor ranks (verify_tensor_cause.cc): in a step that `plain` has just done, and before the first.
Cause cause_from_tensor_ranks(const VerifyWork& work, const StepRecord& record, PlainReference& plain,
                              double tolerance);
Cause cause_of_initial_slices(const VerifyWork& work, const std::string& parameter, const at::Tensor& got,
                              const at::Tensor& expected);

}  // namespace troika
