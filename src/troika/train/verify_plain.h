// The plain side of verify: steps of the plain run, and the pieces' own gradients by plain code when a cause
// is looked for. Uses nothing of `parallel` that updates a weight. Threading: belongs to one thread.
#pragma once

#include <string>
#include <vector>

#include "troika/train/verify.h"
#include "troika/train/verify_cause.h"

namespace troika {

class PlainReference {
 public:
  /// `work` must outlive it.
  PlainReference(const VerifyWork& work, at::ScalarType dtype);

  struct Step {
    double loss = 0;
    double grad_norm = 0;               // 0 without clipping
    std::vector<at::Tensor> gradients;  // their mean, before clipping
  };
  /// Step `step` (from 0) of the whole global batch, from these weights and buffers.
  Step step(int64_t step, const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& buffers);

  const std::vector<at::Tensor>& weights() const { return run_.parameters(); }
  const std::vector<std::string>& names() const { return names_; }
  std::vector<at::Tensor> buffers() const;
  std::vector<std::string> buffer_names() const;

  /// The mean gradient of the last step's batch at other weights.
  std::vector<at::Tensor> gradients_at(int64_t step, const std::vector<at::Tensor>& weights);

  /// Of the last step, per piece: the loss (index 0), then each parameter's gradient.
  std::vector<PieceValues> pieces_at(int64_t step, const std::vector<at::Tensor>& weights);

 private:
  void set_buffers(const std::vector<at::Tensor>& buffers);
  LossValue loss_of(const Batch& batch);
  void add_piece(const Batch& piece, std::vector<PieceValues>& out);

  const VerifyWork& work_;
  at::ScalarType dtype_;
  Model model_;
  PlainRun run_;
  std::vector<std::string> names_;
  int64_t updates_ = 0;
  int64_t optimizer_step_ = 1;  // of the last step(), from 1; a batch of weight 0 is none
};

}  // namespace troika
