// What crosses a stage's borders: which tensors come from and go to which other stage, and how the gradients
// that come back become the roots of backward.
#include <ATen/ops/add.h>
#include <ATen/ops/ones_like.h>

#include <algorithm>

#include "troika/base/error.h"
#include "troika/parallel/stage_work.h"

namespace troika {
namespace {

const StageEdge& edge_with(const std::vector<StageEdge>& edges, int stage) {
  const auto found = std::ranges::find(edges, stage, &StageEdge::stage);
  TROIKA_ASSERT(found != edges.end(), fmt::format("no edge to stage {}", stage));
  return *found;
}

size_t place_of(const std::vector<StageEdge>& edges, int stage) {
  return static_cast<size_t>(&edge_with(edges, stage) - edges.data());
}

std::string shape_text(const at::Tensor& tensor) {
  if (!tensor.defined()) return "nothing";
  return fmt::format("[{}] {}", fmt::join(tensor.sizes(), ", "), c10::toString(tensor.scalar_type()));
}

}  // namespace

// The chain's tensors first: they come along the edge from the stage before, with skips behind them.
void Stage::put_inputs_together(Work& work) {
  if (is_first()) {
    work.given = work.batch.inputs;
    work.needs.assign(work.given.size(), 0);
  }
  Tensors imports;
  std::vector<uint8_t> import_needs;
  SampleDims import_dims;
  for (size_t e = 0; e < wiring_.in.size(); ++e) {
    const StageEdge& edge = wiring_.in[e];
    Parcel& parcel = work.arrived[e];
    const size_t skips = edge.skips.size(), all = parcel.tensors.size();
    if (all < skips || (!edge.chain && all > skips)) {
      fail("stage {} gets {} tensor{} from stage {}, which puts {} for it", wiring_.stage, all,
           all == 1 ? "" : "s", edge.stage, skips);
    }
    for (size_t i = 0; i < all; ++i) {
      const bool is_skip = i >= all - skips;
      (is_skip ? imports : work.given).push_back(std::move(parcel.tensors[i]));
      (is_skip ? import_needs : work.needs).push_back(parcel.needs_gradient.at(i));
      (is_skip ? import_dims : work.dims).push_back(parcel.sample_dims.at(i));
    }
    parcel = {};
  }
  work.chain_inputs = work.given.size();
  work.given.insert(work.given.end(), imports.begin(), imports.end());
  work.needs.insert(work.needs.end(), import_needs.begin(), import_needs.end());
  work.dims.insert(work.dims.end(), import_dims.begin(), import_dims.end());
}

// Which of `outputs` outputs go along an edge, in the order of its parcels.
std::vector<size_t> Stage::outputs_along(const StageEdge& edge, size_t outputs) const {
  const std::vector<std::string>& exports = border_.exports;
  const size_t chain = outputs - exports.size();
  std::vector<size_t> places;
  for (size_t i = 0; edge.chain && i < chain; ++i) places.push_back(i);
  for (const std::string& skip : edge.skips) {
    places.push_back(chain + static_cast<size_t>(std::ranges::find(exports, skip) - exports.begin()));
  }
  return places;
}

Parcel Stage::activation_for(int micro_batch, int to) {
  Work& now = work(micro_batch);
  Parcel parcel;
  if (now.empty()) return parcel;
  for (const size_t i : outputs_along(edge_with(wiring_.out, to), now.outputs.size())) {
    parcel.tensors.push_back(hand_out(now.outputs[i]));
    parcel.needs_gradient.push_back(now.output_needs[i]);
    parcel.sample_dims.push_back(output_dims_.empty() ? kUnknownSamples : output_dims_.at(i));
  }
  return parcel;
}

void Stage::take_activation(int micro_batch, int from, Parcel parcel) {
  work(micro_batch).arrived[place_of(wiring_.in, from)] = std::move(parcel);
}

void Stage::take_gradient(int micro_batch, int from, Parcel parcel) {
  Work& now = work(micro_batch);
  const StageEdge& edge = edge_with(wiring_.out, from);
  if (edge.chain) note_loss(now, micro_batch, parcel.loss_sum, parcel.weight);
  now.returned[place_of(wiring_.out, from)] = std::move(parcel);
}

// An output's gradient is the sum over the layers that read it, the last one's first: so autograd adds them
// in a serial run.
void Stage::collect_roots(Work& work, Tensors& roots, Tensors& gradients) const {
  check_version(work);
  if (is_last()) {
    roots = {work.loss};
    gradients = {at::ones_like(work.loss)};
    return;
  }
  Tensors sums(work.outputs.size());
  for (size_t e = wiring_.out.size(); e-- > 0;) {
    const StageEdge& edge = wiring_.out[e];
    Tensors& returned = work.returned[e].tensors;
    const std::vector<size_t> places = outputs_along(edge, work.outputs.size());
    if (returned.size() != places.size()) {
      fail("stage {} sent {} tensor{} to stage {} and gets {} gradients back", wiring_.stage, places.size(),
           places.size() == 1 ? "" : "s", edge.stage, returned.size());
    }
    for (size_t i = places.size(); i-- > 0;) {
      const at::Tensor& output = work.outputs[places[i]];
      at::Tensor& sum = sums[places[i]];
      const at::Tensor& gradient = returned[i];
      if (!gradient.defined() || !output.requires_grad()) continue;
      if (gradient.sizes() != output.sizes()) {
        fail("stage {} gave {} to stage {} and gets a gradient of {} back", wiring_.stage, shape_text(output),
             edge.stage, shape_text(gradient));
      }
      sum = sum.defined() ? at::add(sum, gradient) : gradient;
    }
    returned.clear();
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    if (!sums[i].defined()) continue;
    roots.push_back(std::move(work.outputs[i]));
    gradients.push_back(std::move(sums[i]));
  }
  work.outputs.clear();
}

Parcel Stage::gradient_for(int micro_batch, int to) {
  Work& now = work(micro_batch);
  Parcel parcel;
  const size_t place = place_of(wiring_.in, to);
  if (wiring_.in[place].chain) {
    parcel.loss_sum = now.loss_sum;
    parcel.weight = now.weight;
  }
  if (now.input_gradients.empty()) return parcel;  // no backward: an empty micro-batch, or a loss gone wrong
  if (wiring_.in[place].chain) {
    std::move(now.input_gradients.begin(),
              now.input_gradients.begin() + static_cast<ptrdiff_t>(now.chain_inputs),
              std::back_inserter(parcel.tensors));
  }
  size_t first = now.chain_inputs;  // the imports stand behind them, edge by edge
  for (size_t e = 0; e < place; ++e) first += wiring_.in[e].skips.size();
  for (size_t i = 0; i < wiring_.in[place].skips.size(); ++i) {
    parcel.tensors.push_back(std::move(now.input_gradients[first + i]));
  }
  return parcel;
}

}  // namespace troika
