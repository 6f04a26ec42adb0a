// The plain side of verify: steps of the plain run; and when a cause is looked for, the pieces' own gradients
// and runs with a mistake made on purpose. Of `parallel` it uses the modules that a list of layers makes and
// the noise that is keyed for them; how layers follow each other, skips, ties and updates are its own.
// Threading: belongs to one thread.
#pragma once

#include <string>
#include <vector>

#include "troika/train/verify.h"
#include "troika/train/verify_cause.h"

namespace troika {

/// What a pipeline may do wrong, for the plain run to do on purpose. Both weights are full lists; null: the
/// right ones.
struct PlainMistake {
  Range layers;  // that compute with other weights
  const std::vector<at::Tensor>* forward = nullptr;
  const std::vector<at::Tensor>* backward = nullptr;
  int64_t deaf_layer = -1;  // no gradient goes back from it
  std::string lost_skip;    // along this skip; empty: to the layer before
};

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

  /// The last step's mean loss and gradients from these weights, with a mistake.
  Step with_mistake(int64_t step, const std::vector<at::Tensor>& weights, const PlainMistake& mistake);

  /// The parts of the last step's mean gradient of a tied parameter: its owner's, then its uses' in the order
  /// of layers, with their names. Empty for any other parameter.
  struct Part {
    std::string name;
    at::Tensor gradient;
  };
  std::vector<Part> tied_parts(int64_t step, const std::vector<at::Tensor>& weights, size_t parameter);

  /// Of the last step, per piece: the loss (index 0), then each parameter's gradient. Only deaf layers count
  /// of a mistake.
  std::vector<PieceValues> pieces_at(int64_t step, const std::vector<at::Tensor>& weights,
                                     const PlainMistake& mistake = {});

 private:
  /// A layer's tensor that is another parameter's.
  struct Use {
    std::string name;
    size_t owner = 0;  // of the parameters
    size_t layer = 0;
    at::Tensor tensor;
  };
  void set_buffers(const std::vector<at::Tensor>& buffers);
  void set_weights(const std::vector<at::Tensor>& weights);
  void set_wrong(const std::vector<at::Tensor>* wrong, const std::vector<at::Tensor>& right, Range layers);
  Tensors run_layers(const Tensors& inputs, const PlainMistake& mistake);
  LossValue loss_of(const Batch& batch, const PlainMistake& mistake = {});
  std::vector<at::Tensor> leaves() const;
  std::vector<at::Tensor> gradients_of(const at::Tensor& loss) const;
  void add_uses();
  void add_piece(const Batch& piece, const PlainMistake& mistake, std::vector<PieceValues>& out);

  const VerifyWork& work_;
  at::ScalarType dtype_;
  std::vector<size_t> layer_of_;  // by parameter
  Model model_;
  std::vector<Use> uses_;  // in the order of layers
  PlainRun run_;
  std::vector<std::string> names_;
  int64_t updates_ = 0;
  int64_t optimizer_step_ = 1;  // of the last step(), from 1; a batch of weight 0 is none
};

}  // namespace troika
