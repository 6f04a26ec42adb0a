// The mistakes that tensor ranks can make: a sum over them that is missing or taken twice, slices in each
// other's place, a bias that every rank adds.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "troika/parallel/wiring.h"
#include "troika/train/verify_cause.h"
#include "troika/train/verify_comparison.h"
#include "troika/train/verify_plain.h"
#include "troika/train/verify_slices.h"

namespace troika {
namespace {

Cuts cuts_of(const VerifyWork& work) {
  const TensorPlan plan = tensor_plan_of(work);
  Cuts cuts;
  for (const LayerSplit& layer : plan.layers) {
    if (!layer.way) continue;
    for (const CutTensor& cut : layer.way->cuts) cuts[full_name(layer.layer, cut.name)] = cut.cut;
  }
  return cuts;
}

/// The whole tensor with the slices of ranks a and b in each other's place.
at::Tensor with_swapped(const at::Tensor& whole, const Cut& cut, int ranks, int a, int b) {
  std::vector<at::Tensor> slices;
  for (int rank = 0; rank < ranks; ++rank) slices.push_back(slice_of(whole, cut, ranks, rank));
  std::swap(slices[static_cast<size_t>(a)], slices[static_cast<size_t>(b)]);
  return whole_of(slices, cut);
}

/// What `holds` says of some two ranks with slices of one size.
template <typename Holds>
std::string swapped_ranks(const Cut& cut, int ranks, const Holds& holds) {
  for (int a = 0; a < ranks; ++a) {
    for (int b = a + 1; b < ranks; ++b) {
      if (cut.size_of(ranks, a) == cut.size_of(ranks, b) && holds(a, b))
        return fmt::format("the slices of tensor ranks {} and {} are in each other's place", a, b);
    }
  }
  return "";
}

Cause from_sums(const StepRecord& record, const std::vector<at::Tensor>& expected,
                const std::vector<std::string>& names, const Cuts& cuts, double tolerance) {
  const auto& of_ranks = record.gradients_of_tensor_ranks;
  for (size_t i = 0; i < expected.size(); ++i) {
    const at::Tensor& got = of_ranks[0][i];
    if (close(got, expected[i], tolerance) || largest(expected[i]) == 0) continue;
    if (close(got, expected[i] * static_cast<double>(of_ranks.size()), tolerance)) {
      return {"double_contribution",
              fmt::format("the gradient of \"{}\" has a sum over tensor ranks once too often", names[i])};
    }
    if (cuts.contains(names[i])) continue;
    at::Tensor sum = at::zeros_like(got);
    for (const auto& of_rank : of_ranks) sum = sum + of_rank[i];
    if (close(sum, expected[i], tolerance)) {
      return {"missing_contribution",
              fmt::format("the gradient of \"{}\" lacks a sum over tensor ranks: each has a part", names[i])};
    }
  }
  return {};
}

}  // namespace

Cause cause_of_initial_slices(const VerifyWork& work, const std::string& parameter, const at::Tensor& got,
                              const at::Tensor& expected) {
  const int ranks = work.options.mesh.tensor;
  if (ranks == 1) return {};
  const Cuts cuts = cuts_of(work);
  const auto cut = cuts.find(parameter);
  if (cut == cuts.end()) return {};
  const std::string which = swapped_ranks(cut->second, ranks, [&](int a, int b) {
    return at::equal(got, with_swapped(expected, cut->second, ranks, a, b));
  });
  return which.empty() ? Cause{} : Cause{"shard_swapped", which};
}

Cause cause_from_tensor_ranks(const VerifyWork& work, const StepRecord& record, PlainReference& plain,
                              double tolerance) {
  const int ranks = work.options.mesh.tensor;
  if (ranks == 1) return {};
  const Cuts cuts = cuts_of(work);
  const std::vector<at::Tensor>& right = record.weights_before[0];
  const std::vector<std::string>& names = plain.names();
  const PlainReference::Step expected = plain.with_mistake(record.step - 1, right, {});
  const bool loss_is_right = close(at::scalar_tensor(record.loss, at::kDouble),
                                   at::scalar_tensor(expected.loss, at::kDouble), tolerance);
  if (loss_is_right) return from_sums(record, expected.gradients, names, cuts, tolerance);
  const auto gives_loss = [&](size_t parameter, const at::Tensor& wrong) {
    std::vector<at::Tensor> weights = right;
    weights[parameter] = wrong;
    PlainMistake mistake;
    mistake.layers = {0, std::ssize(work.layers)};
    mistake.forward = mistake.backward = &weights;
    return close(at::scalar_tensor(record.loss, at::kDouble),
                 at::scalar_tensor(plain.with_mistake(record.step - 1, right, mistake).loss, at::kDouble),
                 tolerance);
  };
  for (size_t i = 0; i < names.size(); ++i) {
    const auto cut = cuts.find(names[i]);
    if (cut == cuts.end()) {
      if (right[i].dim() == 1 && gives_loss(i, right[i] * ranks)) {
        return {"double_contribution",
                fmt::format("each of the {} tensor ranks adds \"{}\"", ranks, names[i])};
      }
      continue;
    }
    const std::string which = swapped_ranks(cut->second, ranks, [&](int a, int b) {
      return gives_loss(i, with_swapped(right[i], cut->second, ranks, a, b));
    });
    if (!which.empty()) return {"shard_swapped", fmt::format("\"{}\": {}", names[i], which)};
  }
  return {};
}

}  // namespace troika
