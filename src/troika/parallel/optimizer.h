// Which optimizer, with its numbers, as torch defines them (torch::optim::SGD, Adam, AdamW). A value.
#pragma once

#include <string>

namespace troika {

struct Optimizer {
  enum class Kind { sgd, adam, adamw } kind = Kind::adamw;
  double learning_rate = 1e-3;
  double weight_decay = 0;  // of parameters with 2 dimensions and more; biases and norms have none
  double momentum = 0;      // sgd
  bool nesterov = false;    // sgd
  double beta1 = 0.9;       // adam, adamw
  double beta2 = 0.999;     // adam, adamw
  double epsilon = 1e-8;    // adam, adamw
};

}  // namespace troika
