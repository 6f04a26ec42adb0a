#include "parallel/split_backward_zoo.h"

#include <torch/torch.h>

#include <stdexcept>

namespace troika::test {

namespace F = torch::nn::functional;
using torch::nn::Linear;
using torch::nn::LinearOptions;
using torch::nn::Sequential;

torch::Tensor weight(const std::vector<int64_t>& shape) {
  return (torch::randn(shape) * 0.4).requires_grad_();
}

Part part_of(Tensors parameters, Shapes inputs, std::function<Tensors(const Tensors&, const Tensors&)> run) {
  return {parameters, std::move(inputs), [parameters, run](const Tensors& x) { return run(x, parameters); }};
}

int Scale::calls = 0;
bool Scale::fails = false;

torch::Tensor Scale::forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                             const torch::Tensor& w) {
  context->save_for_backward({x, w});
  return x * w;
}

Tensors Scale::backward(torch::autograd::AutogradContext* context, Tensors gradients) {
  ++calls;
  if (fails) throw std::runtime_error("the scale broke");
  const Tensors saved = context->get_saved_variables();
  return {gradients[0] * saved[1], gradients[0] * saved[0]};  // the engine sums the second over the rows
}

namespace {

/// The forms of products and pointwise operators that have a tensor for a weight.
Tensors operators(const Tensors& x, const Tensors& p) {
  torch::Tensor y = x[0];  // [5, 5]; p: [5, 5], [5], [2, 5, 5], [1, 5, 5]
  y = torch::addmv(p[1], y, p[1]).unsqueeze(1) + y.mm(p[0]) - p[1];
  y = y * p[1] / (2 + p[0] * p[0]);
  y = torch::addcmul(y, y, p[0], 0.3) + torch::addcdiv(p[0], y, 2 + p[1] * p[1]);
  y = torch::maximum(y, p[0]) + torch::minimum(p[1], y) + torch::where(y > 0, y, p[0]);
  y = torch::lerp(y, p[0], torch::sigmoid(y * p[1])) + torch::pow(1.1 + torch::sigmoid(y), p[0]);
  y = y + torch::mv(y, p[1]) * torch::dot(y.flatten(), p[0].flatten()) * 0.01;
  const torch::Tensor rows = torch::stack({y, p[0]});
  y = torch::baddbmm(rows, rows, p[2]).sum(0) + torch::addbmm(p[0], rows, p[2]);
  return {torch::cat({y, p[0]}).tanh(), torch::bmm(y.unsqueeze(0), p[3])};
}

/// Writes through views: into what a parameter made, into what an input made, and an old view used before.
Tensors in_place(const Tensors& x, const Tensors& p) {
  torch::Tensor buffer = p[0].clone();
  torch::Tensor row = buffer[1];
  const torch::Tensor early = row * 2;
  row.copy_(x[0][0]);
  torch::Tensor other = x[0] * 1.5;
  other[2].mul_(p[1]);
  other.narrow(1, 0, 2).add_(p[0].narrow(0, 0, 4).narrow(1, 0, 2));
  other.view({-1}).sin_();
  other.tanh_();
  return {buffer.narrow(0, 0, 4) + other + early, other.t().contiguous().view({2, 10}).mul(p[2])};
}

Tensors attend(const Tensors& x, const Tensors& p) {
  const torch::Tensor queries = (p[0] * 2).expand({2, 1, 3, 4}), keys = x[0], values = x[0] * p[1];
  return {at::scaled_dot_product_attention(queries, keys, values)};
}

/// A parameter in three places, one of them whole, and its own product between.
Tensors mixed_uses(const Tensors& x, const Tensors& p) {
  torch::Tensor y = x[0].mm(p[0]).tanh();
  y = Scale::apply(y, p[0]);
  y = F::prelu(y, p[1]).mm(p[0]);
  return {Scale::apply(y, p[0] * p[0]) + y * p[0]};
}

Sequential mlp() { return Sequential(Linear(5, 7), torch::nn::Tanh(), Linear(7, 5)); }

std::map<std::string, ZooEntry> make_zoo() {
  std::map<std::string, ZooEntry> zoo;
  zoo["mlp"] = {[] { return chain_of(mlp(), {4, 5}); }, 4};
  zoo["residual"] = {[] {
                       return module_part(mlp(), {{4, 5}}, [](Sequential& m, const Tensors& x) {
                         const torch::Tensor y = x[0] + m->forward(x[0]);
                         return y + m->forward(torch::relu(y)) + x[0] * 0.5;
                       });
                     },
                     4};
  zoo["shared_three_times"] = {
      [] {
        return module_part(Linear(5, 5), {{4, 5}}, [](Linear& m, const Tensors& x) {
          return m->forward(torch::tanh(m->forward(x[0] + torch::tanh(m->forward(x[0])))));
        });
      },
      2};
  zoo["convolution"] = {
      [] {
        return chain_of(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3).padding(1)), {2, 3, 6, 6});
      },
      2};
  zoo["convolutions"] = {
      [] {
        return chain_of(Sequential(torch::nn::Conv2d(3, 4, 3), torch::nn::BatchNorm2d(4), torch::nn::ReLU(),
                                   torch::nn::ConvTranspose2d(4, 4, 3), torch::nn::MaxPool2d(2)),
                        {2, 3, 6, 6});
      },
      6};
  zoo["layer_norm"] = {[] { return chain_of(torch::nn::LayerNorm(std::vector<int64_t>{5}), {4, 5}); }, 2};
  zoo["group_norm"] = {[] { return chain_of(torch::nn::GroupNorm(2, 4), {3, 4, 5}); }, 2};
  zoo["batch_norm"] = {[] { return chain_of(torch::nn::BatchNorm1d(5), {4, 5}); }, 2};
  zoo["bilinear"] = {[] {
                       return module_part(torch::nn::Bilinear(3, 4, 5), {{6, 3}, {6, 4}},
                                          [](auto& m, const Tensors& x) { return m->forward(x[0], x[1]); });
                     },
                     2};
  zoo["transformer"] = {[] {
                          return chain_of(
                              torch::nn::TransformerEncoderLayer(
                                  torch::nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(12)),
                              {5, 3, 8});
                        },
                        12};
  zoo["decoder"] = {[] {
                      return module_part(
                          torch::nn::TransformerDecoderLayer(
                              torch::nn::TransformerDecoderLayerOptions(8, 2).dim_feedforward(12)),
                          {{5, 3, 8}, {4, 3, 8}},
                          [](auto& m, const Tensors& x) { return m->forward(x[0], x[1]); });
                    },
                    18};
  zoo["learned_queries"] = {[] {
                              return part_of({weight({3, 4}), weight({4})}, {{2, 1, 6, 4}}, attend);
                            },
                            2, 1};
  zoo["lstm"] = {[] {
                   return module_part(
                       torch::nn::LSTM(torch::nn::LSTMOptions(4, 6).num_layers(2)), {{5, 3, 4}},
                       [](auto& m, const Tensors& x) { return std::get<0>(m->forward(x[0])); });
                 },
                 8, 0, true};
  zoo["gru"] = {[] {
                  return module_part(torch::nn::GRU(torch::nn::GRUOptions(4, 6)), {{5, 3, 4}},
                                     [](auto& m, const Tensors& x) { return std::get<0>(m->forward(x[0])); });
                },
                4};
  zoo["rnn"] = {[] {
                  return module_part(torch::nn::RNN(torch::nn::RNNOptions(4, 6)), {{5, 3, 4}},
                                     [](auto& m, const Tensors& x) { return std::get<0>(m->forward(x[0])); });
                },
                4};
  zoo["embedding"] = {[] {
                        Sequential m(torch::nn::Embedding(9, 5), Linear(5, 5));
                        return module_part(m, {}, [](Sequential& m, const Tensors&) {
                          return m->forward(torch::randint(9, {4, 3}, torch::kInt64));
                        });
                      },
                      3};
  zoo["tied_embedding"] = {[] {
                             return part_of({weight({9, 5}), weight({5, 5})}, {{4, 5}},
                                            [](const Tensors& x, const Tensors& p) {
                                              const auto words = torch::randint(9, {4}, torch::kInt64);
                                              const auto y = F::embedding(words, p[0]) + x[0].mm(p[1]);
                                              return Tensors{y.mm(p[0].t())};
                                            });
                           },
                           2};
  zoo["operators"] = {[] {
                        return part_of({weight({5, 5}), weight({5}), weight({2, 5, 5}), weight({1, 5, 5})},
                                       {{5, 5}}, operators);
                      },
                      4};
  zoo["in_place"] = {[] {
                       return part_of({weight({6, 5}), weight({5}), weight({2, 10})}, {{4, 5}}, in_place);
                     },
                     3, 2};
  zoo["prelu"] = {[] { return chain_of(torch::nn::PReLU(), {4, 5}); }, 1, 1};
  zoo["users_function"] = {[] {
                             return part_of({weight({5}), weight({5, 5})}, {{4, 5}},
                                            [](const Tensors& x, const Tensors& p) {
                                              return Tensors{Scale::apply(x[0].mm(p[1]), p[0]).tanh()};
                                            });
                           },
                           2, 1};
  zoo["function_of_parameters"] = {[] {
                                     return part_of({weight({5}), weight({5, 5})}, {{4, 5}},
                                                    [](const Tensors& x, const Tensors& p) {
                                                      return Tensors{x[0].mm(Scale::apply(p[1], p[0]))};
                                                    });
                                   },
                                   2};
  zoo["mixed_uses"] = {[] { return part_of({weight({5, 5}), weight({1})}, {{5, 5}}, mixed_uses); }, 2, 2};
  zoo["weight_norm"] = {[] {
                          return part_of({weight({5, 5}), weight({5, 1})}, {{4, 5}},
                                         [](const Tensors& x, const Tensors& p) {
                                           const auto w = p[0] * (p[1] / p[0].norm(2, 1, true));
                                           return Tensors{F::linear(torch::tanh(F::linear(x[0], w)), w)};
                                         });
                        },
                        2};
  zoo["several_outputs"] = {[] {
                              return part_of({weight({5, 5}), weight({5}), weight({7}), weight({3})},
                                             {{4, 5}, {4, 5}, {2}}, [](const Tensors& x, const Tensors& p) {
                                               const auto y = (x[0] + x[1]).mm(p[0]);
                                               return Tensors{
                                                   y.sin(), p[1] * p[1], y.detach(), y,
                                                   p[1],    x[1],        y * p[1],   torch::Tensor(y).cos()};
                                             });
                            },
                            2};
  zoo["undefined_gradient"] = {[] {
                                 Part part = part_of({weight({5, 5}), weight({5})}, {{4, 5}, {4, 5}},
                                                     [](const Tensors& x, const Tensors& p) {
                                                       return Tensors{x[1] * p[1], x[0].mm(p[0])};
                                                     });
                                 part.is_first_gradient_undefined = true;
                                 return part;
                               },
                               1};
  zoo["nothing_to_learn"] = {[] {
                               return part_of(
                                   Tensors{weight({5})}, {{4, 5}},
                                   [](const Tensors& x, const Tensors&) { return Tensors{x[0].sin() * 2}; });
                             },
                             0};
  return zoo;
}

}  // namespace

const std::map<std::string, ZooEntry>& zoo() {
  static const std::map<std::string, ZooEntry> all = make_zoo();
  return all;
}

std::vector<std::string> zoo_names() {
  std::vector<std::string> names;
  for (const auto& [name, entry] : zoo()) names.push_back(name);
  return names;
}

}  // namespace troika::test
