// Evaluation is forward only and changes nothing.
#include <ATen/ops/cat.h>

#include "troika/parallel/replica_parts.h"

namespace troika {

// In as many pieces as in training; what a sample gives doesn't depend on them.
Tensors Replica::State::evaluate_in_stages(const Tensors& inputs) {
  const Range samples{0, inputs.at(0).size(0)};
  std::vector<Batch> pieces;
  for (int i = 0; i < forwards.num_micro_batches; ++i) {
    const Range part = share(samples, forwards.num_micro_batches, i);
    Batch& batch = pieces.emplace_back();
    for (const at::Tensor& input : inputs) batch.inputs.push_back(input.narrow(0, part.begin, part.size()));
    batch.samples = part.size();
    batch.first_sample = part.begin;
  }
  for (auto& [number, stage] : stages) stage->stage().begin_evaluation(pieces);
  execute(forwards, lane, steps, lane_work());
  // Everybody gets the last stage's outputs.
  const int last = static_cast<int>(wiring.stages.size()) - 1, last_lane = schedule.lane_of(last);
  const Action message{Op::load, last};
  Parcel all;
  if (lane != last_lane) return link->receive(message, steps, last_lane).tensors;
  std::vector<Tensors> parts;  // the first ones have the samples, if there are few
  for (int i = 0; i < forwards.num_micro_batches; ++i) {
    if (i == 0 || pieces[static_cast<size_t>(i)].samples > 0)
      parts.push_back(stages.at(last)->stage().outputs(i));
  }
  for (size_t k = 0; k < parts[0].size(); ++k) {
    Tensors of_output;
    for (const Tensors& part : parts) of_output.push_back(part[k]);
    all.tensors.push_back(at::cat(of_output));
  }
  for (int to = 0; to < mesh.pipeline; ++to) {
    if (to != lane) link->send(message, steps, all, to);
  }
  return all.tensors;
}

Tensors Replica::evaluate(const Tensors& inputs) {
  State& s = *state_;
  const auto train = [&s](bool on) {
    for (auto& [number, stage] : s.stages) stage->model().train(on);
  };
  train(false);
  try {
    Tensors outputs = s.wiring.stages.size() > 1 ? s.evaluate_in_stages(inputs)
                                                 : s.stages.begin()->second->stage().evaluate(inputs);
    train(true);
    return outputs;
  } catch (...) {
    train(true);
    throw;
  }
}

}  // namespace troika
