// Backward in two parts, for schedules that fill bubbles with weight products (Qi et al., arXiv:2401.10241):
// the input part gives the gradients that an earlier stage waits for, the weight part those of the
// parameters. Both come from autograd's own graph, so any module works, and together they are bit for bit the
// unsplit backward. Threading: an object belongs to the thread that ran the forward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace troika {

/// What the two parts did, for the plan and the tests: how many parameters' gradients each computed.
struct SplitCounts {
  int64_t in_input_part = 0;  // of nodes that compute both at once (a fused LSTM): held for the weight part
  int64_t in_weight_part = 0;
  bool operator==(const SplitCounts&) const = default;
};

class SplitBackward {
 public:
  /// `outputs` are the roots of the graph, those that don't require grad left out or undefined; `inputs` are
  /// leaves that require grad, `parameters` the leaves whose .grad the weight part adds to. Nothing runs yet.
  SplitBackward(std::vector<at::Tensor> outputs, std::vector<at::Tensor> inputs,
                std::vector<at::Tensor> parameters);
  SplitBackward(SplitBackward&&) noexcept;
  SplitBackward& operator=(SplitBackward&&) noexcept;
  ~SplitBackward();

  /// The gradients of `inputs`, undefined for one that no output depends on. `gradients` are those of
  /// `outputs`, in order; undefined: the output takes no part. No parameter's .grad has changed when it
  /// returns or throws. The weight part reads the memory of both, which may be shared: leave it as it is.
  std::vector<at::Tensor> input_part(const std::vector<at::Tensor>& gradients);

  /// Adds to the parameters' .grad, as backward would; then the graph is free. If a node throws, some
  /// parameters have got theirs, as with backward.
  void weight_part();

  const SplitCounts& counts() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace troika
