// For test_weights.py: writes the built-in models' weights and says what is in them.
//   weights_sample write FOLDER            a file for each model; JSON of tensors, inputs and outputs
//   weights_sample read MODEL WINDOW FILE  starts that model from FILE; JSON of its tensors and outputs
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <ATen/ops/stack.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "train/support/series_models.h"
#include "troika/base/error.h"
#include "troika/train/weights_file.h"

namespace {

using namespace troika;
using nlohmann::json;

template <typename T>
json values_of(const at::Tensor& tensor, at::ScalarType as) {
  const at::Tensor flat = tensor.detach().to(as).contiguous();
  return std::vector<T>(flat.data_ptr<T>(), flat.data_ptr<T>() + flat.numel());
}

json to_json(const at::Tensor& tensor) {
  const bool whole = !tensor.is_floating_point();
  return {{"dtype", c10::toString(tensor.scalar_type())},
          {"shape", tensor.sizes().vec()},
          {"values", whole ? values_of<int64_t>(tensor, at::kLong) : values_of<double>(tensor, at::kDouble)}};
}

json to_json(const test::Kind& kind, const Model& model) {
  json tensors = json::object();
  for (const auto* list : {&model.parameters(), &model.others()}) {
    for (const NamedTensor& named : *list) tensors[named.name] = to_json(named.tensor);
  }
  for (const auto& [name, layer] : model.layers()) layer.module->eval();
  const Tensors in = test::small_inputs(kind, 4);
  return {{"model", kind.type},      {"window", kind.window},
          {"tensors", tensors},      {"floats", to_json(in[0])},
          {"codes", to_json(in[1])}, {"outputs", to_json(model.forward(in).at(0))}};
}

void write(const Path& folder) {
  json all = json::array();
  for (const test::Kind& kind : test::kinds()) {
    const Model model = test::small_model(kind);
    const std::string file = fmt::format("{}{}.safetensors", kind.type, kind.window);
    write_weights(folder / file, model.parameters(), model.others(), {{"model", kind.type}});
    all.push_back(to_json(kind, model));
    all.back()["file"] = file;
  }
  const at::Tensor numbers = test::waves({3}, 0.1);
  const std::vector<NamedTensor> types = {{"bfloat16", numbers.to(at::kBFloat16)},
                                          {"float32", numbers.to(at::kFloat)},
                                          {"float64", numbers},
                                          {"int64", (numbers * 1e15).to(at::kLong)},
                                          {"scalar", numbers[0].to(at::kFloat)},
                                          {"nothing", numbers.narrow(0, 0, 0)},
                                          {"name with \"quotes\" and \xc3\xa9", numbers}};
  write_weights(folder / "types.safetensors", types, {}, {});
  all.push_back({{"model", "types"}, {"file", "types.safetensors"}});
  for (const NamedTensor& named : types) all.back()["tensors"][named.name] = to_json(named.tensor);
  std::cout << all.dump() << "\n";
}

void read(const test::Kind& kind, const Path& file) {
  const Model model(make_model(test::small_recipe(kind), test::small_shape(kind)), 5, at::kDouble);
  start_from(file, {}, model.parameters(), model.others());
  std::cout << to_json(kind, model).dump() << "\n";
}

}  // namespace

int main(int count, char** arguments) {
  const std::vector<std::string> words(arguments + 1, arguments + count);
  try {
    if (words.size() == 2 && words[0] == "write") {
      write(words[1]);
    } else if (words.size() == 4 && words[0] == "read") {
      read({words[1], std::stoll(words[2])}, words[3]);
    } else {
      return 2;
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
