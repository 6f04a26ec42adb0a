// The plain run that everything is compared with: one module, the whole global batch at once, torch's own
// optimizer. It uses nothing of `parallel`, so a mistake there can't hide here too. Threading: an object
// belongs to one thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troika {

/// torch::optim's numbers, under torch's names.
struct PlainOptimizer {
  std::string name;  // "sgd" | "adam" | "adamw"
  double learning_rate = 0, weight_decay = 0, momentum = 0;
  bool nesterov = false;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double clip_norm = 0;  // torch's clip_grad_norm_ before each update; 0: none
};

class PlainRun {
 public:
  /// `parameters` are leaves of the module that the loss is computed from. Weight decay is for those of two
  /// dimensions and more.
  PlainRun(std::vector<at::Tensor> parameters, const PlainOptimizer& optimizer);
  ~PlainRun();

  /// Backward of the mean loss, then one optimizer step. Returns the loss.
  double step(const std::function<at::Tensor()>& mean_loss);

  /// The halves of a step. update() returns the norm of the gradient before clipping; 0 without clipping.
  double backward(const std::function<at::Tensor()>& mean_loss);
  double update();

  /// From the next update on.
  void set_learning_rate(double learning_rate);

  /// Copies, of the last backward; after update() they are clipped. Zeros for a parameter that the loss
  /// doesn't depend on.
  std::vector<at::Tensor> gradients() const;

  void set_weights(const std::vector<at::Tensor>& weights);
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

 private:
  struct Optimizer;
  std::vector<at::Tensor> parameters_;
  std::unique_ptr<Optimizer> optimizer_;
};

/// Gradients of `loss` by the parameters, leaving .grad and the weights alone; zeros where there is none.
std::vector<at::Tensor> plain_gradients(const at::Tensor& loss, const std::vector<at::Tensor>& parameters);

}  // namespace troika
