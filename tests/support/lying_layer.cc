#include "support/lying_layer.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/linear.h>

#include <map>

#include "troika/parallel/step_context.h"

namespace troika {
namespace {

struct LyingProduct : torch::autograd::Function<LyingProduct> {
  /// After x: weight and bias, for their gradients.
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor&,
                            const at::Tensor&, const at::Tensor& forward_weight,
                            const at::Tensor& forward_bias, const at::Tensor& backward_weight, double own,
                            double input) {
    context->save_for_backward({x, backward_weight});
    context->saved_data["own"] = own;
    context->saved_data["input"] = input;
    return at::linear(x, forward_weight, forward_bias);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const double own = context->saved_data["own"].toDouble(), input = context->saved_data["input"].toDouble();
    const at::Tensor& dy = gradients[0];
    return {dy.mm(saved[1]) * input, dy.t().mm(saved[0]) * own, dy.sum(0) * own, {}, {}, {}, {}, {}};
  }
};

/// A layer's weights as they were at the beginning of each step.
class History {
 public:
  /// Those of the step before, if there was one.
  std::vector<at::Tensor> last(int64_t step, const torch::nn::LinearImpl& linear) {
    if (!of_step_.contains(step)) {
      of_step_[step] = {linear.weight.detach().clone(), linear.bias.detach().clone()};
    }
    const auto before = of_step_.find(step - 1);
    return before == of_step_.end() ? of_step_[step] : before->second;
  }

 private:
  std::map<int64_t, std::vector<at::Tensor>> of_step_;
};

}  // namespace

Layer lying_linear(std::string name, int64_t in, int64_t out, Lie lie) {
  return {std::move(name), [in, out, lie] {
            torch::nn::Linear linear(in, out);
            const auto history = std::make_shared<History>();
            return LiveLayer{
                linear.ptr(),
                [=](const Tensors& inputs) {
                  const StepContext* const step = current_step();
                  if (step == nullptr) return Tensors{linear.ptr()->forward(inputs.at(0))};
                  const int64_t first = step->samples.begin;
                  const std::vector<at::Tensor> last = history->last(step->step, *linear);
                  const at::Tensor weight = linear->weight.detach();
                  const bool stale = lie.stale_forward;
                  return Tensors{LyingProduct::apply(
                      inputs.at(0), linear->weight, linear->bias, stale ? last[0] : weight,
                      stale ? last[1] : linear->bias.detach(), lie.stale_backward ? last[0] : weight,
                      lie.own_gradient ? lie.own_gradient(first) : 1.0,
                      lie.input_gradient ? lie.input_gradient(first) : 1.0)};
                },
                1};
          }};
}

}  // namespace troika
