// The built-in models once more, sample by sample and number by number, without torch's functions: what their
// tests compare with. Evaluation only.
#pragma once

#include <cmath>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "train/support/series_models.h"

namespace troika::test {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

class NaiveModel {
 public:
  NaiveModel(const Model& model, ModelRecipe recipe, ModelShape shape)
      : recipe_(std::move(recipe)), shape_(std::move(shape)) {
    for (const auto* list : {&model.parameters(), &model.others()}) {
      for (const NamedTensor& named : *list) {
        const at::Tensor flat = named.tensor.detach().to(at::kDouble).contiguous();
        weights_[named.name] = Row(flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel());
      }
    }
  }

  /// One sample: rows of floats and of codes (one of each without a window).
  Row operator()(const Rows& floats, const std::vector<std::vector<int64_t>>& codes) const {
    const std::string& type = recipe_.type;
    if (type == "transformer") return transformer(floats, codes);
    Rows x;
    for (size_t t = 0; t < floats.size(); ++t) x.push_back(embed(floats[t], codes[t]));
    if (type == "mlp") return mlp(x);
    if (type == "tcn") return linear("head", tcn(x).back());
    if (type == "cnn") return linear("head", cnn(x));
    for (int64_t i = 1; i <= recipe_.layers; ++i) {
      const std::string name = type + std::to_string(i);
      x = type == "lstm" ? lstm(name, x) : gru(name, x);
    }
    return linear("head", x.back());
  }

 private:
  const Row& of(const std::string& name) const { return weights_.at(name); }
  static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
  static double relu(double x) { return x > 0 ? x : 0; }
  static double gelu(double x) { return x * 0.5 * (1 + std::erf(x / std::sqrt(2.0))); }

  static Row product(std::span<const double> weight, std::span<const double> bias, const Row& x) {
    Row y;
    for (size_t o = 0; o < bias.size(); ++o) {
      double sum = bias[o];
      for (size_t i = 0; i < x.size(); ++i) sum += weight[o * x.size() + i] * x[i];
      y.push_back(sum);
    }
    return y;
  }

  Row linear(const std::string& name, const Row& x) const {
    return product(of(name + ".weight"), of(name + ".bias"), x);
  }

  Row norm(const std::string& name, const Row& x) const {
    double mean = 0;
    double square = 0;
    for (const double v : x) mean += v / static_cast<double>(x.size());
    for (const double v : x) square += (v - mean) * (v - mean) / static_cast<double>(x.size());
    Row y;
    for (size_t i = 0; i < x.size(); ++i) {
      y.push_back((x[i] - mean) / std::sqrt(square + 1e-5) * of(name + ".weight")[i] + of(name + ".bias")[i]);
    }
    return y;
  }

  Row entry(const std::string& table, size_t rows, int64_t code) const {
    const Row& all = of(table);
    const size_t width = all.size() / rows;
    const auto begin = all.begin() + static_cast<long>(width) * code;
    return {begin, begin + static_cast<long>(width)};
  }

  Row embed(Row x, const std::vector<int64_t>& codes) const {
    for (size_t c = 0; c < codes.size(); ++c) {
      const std::string table = "embed.category" + std::to_string(c) + ".weight";
      for (const double v : entry(table, static_cast<size_t>(shape_.category_values[c]), codes[c]))
        x.push_back(v);
    }
    return x;
  }

  Row mlp(const Rows& rows) const {
    Row x;
    for (const Row& row : rows) x.insert(x.end(), row.begin(), row.end());
    for (int64_t i = 1; i <= recipe_.layers; ++i) {
      x = linear("hidden" + std::to_string(i), x);
      for (double& v : x) v = relu(v);
    }
    return linear("head", x);
  }

  /// Gates of torch's order: input, forget, cell, output.
  Rows lstm(const std::string& name, const Rows& in) const {
    const auto width = static_cast<size_t>(recipe_.width);
    Row h(width);
    Row c(width);
    Rows out;
    for (const Row& x : in) {
      const Row a = product(of(name + ".weight_ih_l0"), of(name + ".bias_ih_l0"), x);
      const Row b = product(of(name + ".weight_hh_l0"), of(name + ".bias_hh_l0"), h);
      const auto gate = [&](size_t g, size_t i) { return a[g * width + i] + b[g * width + i]; };
      for (size_t i = 0; i < width; ++i) {
        c[i] = sigmoid(gate(1, i)) * c[i] + sigmoid(gate(0, i)) * std::tanh(gate(2, i));
        h[i] = sigmoid(gate(3, i)) * std::tanh(c[i]);
      }
      out.push_back(h);
    }
    return out;
  }

  /// Gates: reset, update, new; the reset acts on the product with the state.
  Rows gru(const std::string& name, const Rows& in) const {
    const auto width = static_cast<size_t>(recipe_.width);
    Row h(width);
    Rows out;
    for (const Row& x : in) {
      const Row a = product(of(name + ".weight_ih_l0"), of(name + ".bias_ih_l0"), x);
      const Row b = product(of(name + ".weight_hh_l0"), of(name + ".bias_hh_l0"), h);
      for (size_t i = 0; i < width; ++i) {
        const double reset = sigmoid(a[i] + b[i]);
        const double update = sigmoid(a[width + i] + b[width + i]);
        const double fresh = std::tanh(a[2 * width + i] + reset * b[2 * width + i]);
        h[i] = (1 - update) * fresh + update * h[i];
      }
      out.push_back(h);
    }
    return out;
  }

  /// Row t is the sum over k of weight[., ., k] with row t + offset + k * dilation, where there is one.
  Rows convolve(const std::string& name, const Rows& in, int64_t kernel, int64_t dilation,
                int64_t offset) const {
    const Row& weight = of(name + ".weight");
    const size_t inputs = in[0].size();
    Rows out;
    for (int64_t t = 0; t < static_cast<int64_t>(in.size()); ++t) {
      Row y(weight.size() / inputs / static_cast<size_t>(kernel));
      for (size_t o = 0; o < y.size(); ++o) {
        y[o] = weights_.contains(name + ".bias") ? of(name + ".bias")[o] : 0;
        for (int64_t k = 0; k < kernel; ++k) {
          const int64_t from = t + offset + k * dilation;
          if (from < 0 || from >= static_cast<int64_t>(in.size())) continue;
          for (size_t i = 0; i < inputs; ++i) {
            y[o] += weight[(o * inputs + i) * static_cast<size_t>(kernel) + static_cast<size_t>(k)] *
                    in[static_cast<size_t>(from)][i];
          }
        }
      }
      out.push_back(y);
    }
    return out;
  }

  Rows tcn(Rows x) const {
    for (int64_t i = 1; i <= recipe_.layers; ++i) {
      const std::string name = "block" + std::to_string(i);
      const int64_t dilation = int64_t{1} << (i - 1);
      Rows y = x;
      for (const char* conv : {".conv1", ".conv2"}) {
        y = convolve(name + conv, y, 3, dilation, -2 * dilation);
        for (Row& row : y)
          for (double& v : row) v = relu(v);
      }
      const bool widths_differ = weights_.contains(name + ".downsample.weight");
      const Rows residual = widths_differ ? convolve(name + ".downsample", x, 1, 1, 0) : x;
      for (size_t t = 0; t < y.size(); ++t)
        for (size_t c = 0; c < y[t].size(); ++c) y[t][c] = relu(y[t][c] + residual[t][c]);
      x = y;
    }
    return x;
  }

  Row cnn(Rows x) const {
    for (int64_t i = 1; i <= recipe_.layers; ++i) {
      const std::string name = "conv" + std::to_string(i);
      x = convolve(name + ".conv", x, 3, 1, -1);
      const std::string norm = name + ".norm.";
      for (Row& row : x) {
        for (size_t c = 0; c < row.size(); ++c) {
          const double scaled =
              (row[c] - of(norm + "running_mean")[c]) / std::sqrt(of(norm + "running_var")[c] + 1e-5);
          row[c] = relu(scaled * of(norm + "weight")[c] + of(norm + "bias")[c]);
        }
      }
    }
    Row mean(x[0].size());
    for (const Row& row : x)
      for (size_t c = 0; c < row.size(); ++c) mean[c] += row[c] / static_cast<double>(x.size());
    return mean;
  }

  Rows attention(const std::string& name, const Rows& x) const {
    const size_t width = x[0].size();
    const size_t each = width / static_cast<size_t>(recipe_.heads);
    Rows projected;  // query, key, value of each token
    for (const Row& row : x)
      projected.push_back(product(of(name + ".in_proj_weight"), of(name + ".in_proj_bias"), row));
    Rows out;
    for (size_t t = 0; t < x.size(); ++t) {
      Row seen(width);
      for (size_t first = 0; first < width; first += each) {
        Row share;
        double total = 0;
        for (size_t s = 0; s < x.size(); ++s) {
          double dot = 0;
          for (size_t i = first; i < first + each; ++i) dot += projected[t][i] * projected[s][width + i];
          share.push_back(std::exp(dot / std::sqrt(static_cast<double>(each))));
          total += share.back();
        }
        for (size_t s = 0; s < x.size(); ++s)
          for (size_t i = first; i < first + each; ++i)
            seen[i] += share[s] / total * projected[s][2 * width + i];
      }
      out.push_back(linear(name + ".out_proj", seen));
    }
    return out;
  }

  static Row sum(Row a, const Row& b) {
    for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    return a;
  }

  Row transformer(const Rows& floats, const std::vector<std::vector<int64_t>>& codes) const {
    Rows x;
    if (shape_.window > 0) {
      for (size_t t = 0; t < floats.size(); ++t) {
        const Row position = entry("tokens.position.weight", floats.size(), static_cast<int64_t>(t));
        x.push_back(sum(linear("tokens.linear", embed(floats[t], codes[t])), position));
      }
    } else {
      x.push_back(of("tokens.leading"));
      const auto inputs = static_cast<size_t>(shape_.floats);
      for (size_t f = 0; f < inputs; ++f) {
        Row token = entry("tokens.weight", inputs, static_cast<int64_t>(f));
        for (double& v : token) v *= floats[0][f];
        x.push_back(sum(token, entry("tokens.bias", inputs, static_cast<int64_t>(f))));
      }
      for (size_t c = 0; c < codes[0].size(); ++c) {
        x.push_back(entry("tokens.category" + std::to_string(c) + ".weight",
                          static_cast<size_t>(shape_.category_values[c]), codes[0][c]));
      }
    }
    for (int64_t i = 1; i <= recipe_.layers; ++i) {
      const std::string name = "block" + std::to_string(i);
      Rows normed;
      for (const Row& row : x) normed.push_back(norm(name + ".norm1", row));
      const Rows seen = attention(name + ".self_attn", normed);
      for (size_t t = 0; t < x.size(); ++t) {
        x[t] = sum(x[t], seen[t]);
        Row inner = linear(name + ".linear1", norm(name + ".norm2", x[t]));
        for (double& v : inner) v = gelu(v);
        x[t] = sum(x[t], linear(name + ".linear2", inner));
      }
    }
    return linear("head", norm("norm", shape_.window > 0 ? x.back() : x.front()));
  }

  ModelRecipe recipe_;
  ModelShape shape_;
  std::map<std::string, Row> weights_;
};

}  // namespace troika::test
