// A module of your own, trained data-parallel on all cores, with the same result as on one.
#include <torch/torch.h>

#include <iostream>

#include "troika/train/fit.h"

struct Net : torch::nn::Module {
  torch::nn::Linear in{register_module("in", torch::nn::Linear(16, 64))};
  torch::nn::Linear out{register_module("out", torch::nn::Linear(64, 1))};
  torch::Tensor forward(torch::Tensor x) { return out(torch::relu(in(x))); }
};

int main() {
  const torch::Tensor x = torch::randn({20'000, 16}), y = x.square().mean(1, true);
  const auto loss =
      troika::per_sample_loss([](auto output, auto target) { return (output - target).square(); });
  troika::FitOptions options;
  options.ranks = 2;
  options.batch = 256;
  options.epochs = 5;
  options.on_epoch = [](int64_t epoch, double mean) {
    std::cout << "epoch " << epoch << "  loss " << mean << "\n";
    return true;
  };
  const auto fitted = troika::fit({troika::layer<Net>("net")}, loss, {x}, y, options);
  return fitted.losses.back() < 0.2 * fitted.losses.front() ? 0 : 1;
}
