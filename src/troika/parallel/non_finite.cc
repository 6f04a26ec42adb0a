#include "troika/parallel/non_finite.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>

#include <algorithm>

#include "troika/base/error.h"

namespace troika {
namespace {

bool finite(const at::Tensor& tensor) {
  return !tensor.defined() || !tensor.is_floating_point() || at::isfinite(tensor).all().item<bool>();
}

// The first tensor of `list` that isn't finite, or -1.
int64_t first_in(const Tensors& list) {
  const auto at = std::find_if(list.begin(), list.end(), [](const at::Tensor& t) { return !finite(t); });
  return at == list.end() ? -1 : at - list.begin();
}

}  // namespace

NonFinite find_non_finite(const Model& model, const Batch& batch) {
  const at::NoGradGuard no_grad;
  if (const int64_t i = first_in(batch.inputs); i >= 0) return {NonFinite::Where::input, i};
  for (size_t i = 0; i < model.parameters().size(); ++i) {
    if (!finite(model.parameters()[i].tensor)) return {NonFinite::Where::parameter, static_cast<int64_t>(i)};
  }
  int64_t bad_layer = -1;
  model.forward(batch.inputs, [&](size_t layer, const Tensors& outputs) {
    if (first_in(outputs) >= 0) bad_layer = static_cast<int64_t>(layer);
    return bad_layer < 0;
  });
  if (bad_layer >= 0) return {NonFinite::Where::output, bad_layer};
  if (!finite(batch.target)) return {NonFinite::Where::target, 0};
  return {NonFinite::Where::loss, 0};
}

std::string describe(const NonFinite& found, const Model& model) {
  const auto index = static_cast<size_t>(found.index);
  switch (found.where) {
    case NonFinite::Where::input:
      return fmt::format("input {} of the model", found.index);
    case NonFinite::Where::parameter:
      return fmt::format("parameter \"{}\"", model.parameters()[index].name);
    case NonFinite::Where::output:
      return fmt::format("the output of layer \"{}\"", model.layers()[index].first);
    case NonFinite::Where::target:
      return "the target";
    case NonFinite::Where::loss:
      return "the loss itself";
  }
  TROIKA_ASSERT(false, fmt::format("place {}", static_cast<int64_t>(found.where)));
}

std::string first_non_finite_parameter(const std::vector<NamedTensor>& parameters) {
  for (const NamedTensor& p : parameters) {
    if (!finite(p.tensor)) return p.name;
  }
  return "";
}

}  // namespace troika
