#include "troika/parallel/replica_state.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>

#include <fmt/ranges.h>

#include <map>
#include <set>

#include "troika/base/error.h"
#include "troika/base/text.h"
#include "troika/parallel/fused_update.h"

namespace troika {
namespace {

/// Weights and moments as views, with their names in a state.
std::vector<NamedTensor> flat_views(const StateParts& parts) {
  std::vector<NamedTensor> views;
  const auto add = [&](const std::string& kind, const at::Tensor& flat) {
    for (const NamedTensor& v : views_of(flat, parts.buffers.layout))
      views.push_back({kind + "." + v.name, v.tensor});
  };
  add("weights", parts.buffers.weights);
  const std::vector<std::string> names = moment_names(parts.optimizer);
  for (size_t i = 0; i < names.size(); ++i) add(names[i], parts.buffers.moments[i]);
  return views;
}

std::vector<NamedTensor> step_tensors(const StateParts& parts) {
  std::vector<NamedTensor> steps;
  for (size_t i = 0; i < parts.optimizer_steps.size(); ++i) {
    steps.push_back({"optimizer_steps." + parts.buffers.layout.entries[i].name,
                     at::scalar_tensor(parts.optimizer_steps[i], at::TensorOptions().dtype(at::kLong))});
  }
  return steps;
}

std::map<std::string, at::Tensor> by_name(const std::vector<NamedTensor>& list) {
  std::map<std::string, at::Tensor> map;
  for (const NamedTensor& item : list) {
    if (!map.emplace(item.name, item.tensor).second) fail("the state has \"{}\" twice", item.name);
  }
  return map;
}

std::string shape_of(const at::Tensor& tensor) {
  return fmt::format("({})", fmt::join(tensor.sizes(), ", "));
}

}  // namespace

std::vector<NamedTensor> all_parts(const StateParts& parts) {
  std::vector<NamedTensor> all = flat_views(parts);
  for (NamedTensor& step : step_tensors(parts)) all.push_back(std::move(step));
  for (const NamedTensor& other : parts.others)
    all.push_back({"others." + other.name, other.tensor.detach()});
  return all;
}

std::vector<NamedTensor> copy_state(const StateParts& parts) {
  const at::NoGradGuard no_grad;
  std::vector<NamedTensor> copies;
  for (const NamedTensor& part : all_parts(parts)) copies.push_back({part.name, part.tensor.clone()});
  return copies;
}

void check_state(const std::vector<NamedTensor>& expected, const std::vector<std::string>& names,
                 const std::vector<NamedTensor>& given) {
  const auto map = by_name(given);
  std::vector<std::string> wrong;
  for (const NamedTensor& part : expected) {
    const auto at = map.find(part.name);
    if (at == map.end()) {
      wrong.push_back(fmt::format("missing: {} {}", part.name, shape_of(part.tensor)));
    } else if (at->second.sizes() != part.tensor.sizes()) {
      wrong.push_back(fmt::format("{} has shape {}, the model's is {}", part.name, shape_of(at->second),
                                  shape_of(part.tensor)));
    }
  }
  const std::set<std::string> known(names.begin(), names.end());
  for (const NamedTensor& item : given) {
    if (!known.contains(item.name)) {
      wrong.push_back(fmt::format("unexpected: {}{}", item.name, did_you_mean(item.name, names)));
    }
  }
  if (wrong.empty()) return;
  fail(
      "the state does not fit this model and optimizer ({} difference{}): {}. Load it into the model and the "
      "optimizer "
      "it was saved from",
      wrong.size(), wrong.size() == 1 ? "" : "s", fmt::join(wrong, "; "));
}

void read_state(const StateParts& parts, const std::vector<NamedTensor>& given, bool with_weights,
                std::vector<int64_t>& optimizer_steps) {
  const at::NoGradGuard no_grad;
  const auto map = by_name(given);
  if (with_weights) {
    for (const NamedTensor& view : flat_views(parts)) view.tensor.copy_(map.at(view.name));
  }
  for (const NamedTensor& other : parts.others) other.tensor.detach().copy_(map.at("others." + other.name));
  for (size_t i = 0; i < optimizer_steps.size(); ++i) {
    optimizer_steps[i] = map.at("optimizer_steps." + parts.buffers.layout.entries[i].name).item<int64_t>();
  }
}

}  // namespace troika
