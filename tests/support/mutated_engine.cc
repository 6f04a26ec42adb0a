#include "support/mutated_engine.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "troika/train/plain.h"
#include "troika/train/verify_pieces.h"

namespace troika {
namespace {

using Gradients = std::vector<at::Tensor>;

std::vector<at::Tensor> tensors_of(const Model& model) {
  std::vector<at::Tensor> out;
  for (const NamedTensor& named : model.parameters()) out.push_back(named.tensor);
  return out;
}

std::vector<at::Tensor> copies(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> out;
  for (const at::Tensor& t : tensors) out.push_back(t.detach().clone());
  return out;
}

struct RankPart {
  Gradients sum;
  double weight = 0;
  double loss = 0;
};

RankPart part_of_rank(const VerifyWork& work, int64_t step, int rank, at::ScalarType dtype,
                      const Model& model, Mutation mutation) {
  RankPart part;
  const std::vector<at::Tensor> parameters = tensors_of(model);
  for (const at::Tensor& p : parameters) part.sum.push_back(at::zeros_like(p.detach()));
  std::vector<Batch> pieces = pieces_of_rank(work, step, rank, dtype);
  for (size_t j = 0; j < pieces.size(); ++j) {
    if (pieces[j].samples == 0) continue;
    const LossValue value = work.loss(model.forward(pieces[j].inputs), pieces[j]);
    part.weight += value.weight;
    part.loss += value.sum.item<double>();
    if (mutation == Mutation::lost_piece && rank + 1 == work.ranks && j + 1 == pieces.size()) continue;
    const Gradients g = plain_gradients(value.sum, parameters);
    for (size_t i = 0; i < g.size(); ++i) part.sum[i] += g[i];
  }
  return part;
}

// What rank `rank` believes the mean gradient of parameter i is.
at::Tensor combine(const std::vector<RankPart>& parts, size_t i, size_t rank, const VerifyWork& work,
                   Mutation mutation) {
  double total = 0;
  for (const RankPart& part : parts) total += part.weight;
  if (mutation == Mutation::skipped_bucket && i + 2 >= parts[0].sum.size()) return parts[rank].sum[i] / total;
  at::Tensor out = at::zeros_like(parts[0].sum[i]);
  for (size_t r = 0; r < parts.size(); ++r) {
    double divisor = total;
    if (mutation == Mutation::sum_of_rank_means) divisor = parts[r].weight;
    if (mutation == Mutation::sum_of_samples) divisor = 1;
    if (mutation == Mutation::mean_of_rank_means)
      divisor = parts[r].weight * static_cast<double>(parts.size());
    if (mutation == Mutation::scaled_by_micro_batches) divisor = total * work.micro_batches;
    const double times = mutation == Mutation::counted_twice && r == 0 ? 2 : 1;
    if (parts[r].weight > 0) out += parts[r].sum[i] * times / divisor;
  }
  return out;
}

double norm_of(const Gradients& gradients) {
  double squares = 0;
  for (const at::Tensor& g : gradients) squares += g.square().sum().item<double>();
  return std::sqrt(squares);
}

double clipping_factor(double norm, double clip_norm) {
  return clip_norm > 0 ? std::min(1.0, clip_norm / (norm + 1e-6)) : 1;
}

// Each rank clips its own mean, and the clipped ones are put together.
std::vector<RankPart> clipped_by_rank(std::vector<RankPart> parts, double clip_norm) {
  for (RankPart& part : parts) {
    const double norm = norm_of(part.sum) / part.weight;
    for (at::Tensor& g : part.sum) g = g * clipping_factor(norm, clip_norm);
  }
  return parts;
}

/// Plain SGD, as the plain run does it.
void sgd(const std::vector<at::Tensor>& parameters, const Gradients& gradients, double factor, double rate,
         const VerifyWork& work, Mutation mutation) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor weights = parameters[i].detach();
    at::Tensor step = gradients[i] * factor;
    if (weights.dim() >= 2 || mutation == Mutation::decay_on_biases) {
      step = step + weights * work.options.optimizer.weight_decay;
    }
    weights.sub_(step * rate);
  }
}

double rate_of_step(const VerifyWork& work, int64_t step, Mutation mutation) {
  if (!work.learning_rate) return work.options.optimizer.learning_rate;
  return work.learning_rate(mutation == Mutation::late_learning_rate && step > 0 ? step - 1 : step);
}

}  // namespace

Engine mutated_engine(Mutation mutation) {
  return [mutation](const VerifyWork& work, at::ScalarType dtype,
                    const std::function<void(const StepRecord&)>& on_step) {
    std::vector<Model> models, stale;
    for (int r = 0; r < work.ranks; ++r) {
      const bool other = mutation == Mutation::other_initial_weights && r + 1 == work.ranks;
      models.emplace_back(work.layers, work.options.seed + (other ? 1 : 0), dtype);
      stale.emplace_back(work.layers, work.options.seed, dtype);
    }
    for (int64_t step = 0; step < work.steps; ++step) {
      StepRecord record;
      record.step = step + 1;
      std::vector<RankPart> parts;
      double weight = 0;
      for (int r = 0; r < work.ranks; ++r) {
        const auto& model = mutation == Mutation::stale_weights ? stale : models;
        parts.push_back(part_of_rank(work, step, r, dtype, model[static_cast<size_t>(r)], mutation));
        record.loss += part_of_rank(work, step, r, dtype, models[static_cast<size_t>(r)], mutation).loss;
        weight += parts.back().weight;
      }
      record.loss /= weight;
      const bool by_rank = mutation == Mutation::clip_by_rank;
      const auto clipped = by_rank ? clipped_by_rank(parts, work.options.clip_norm) : parts;
      for (size_t r = 0; r < models.size(); ++r) {
        const std::vector<at::Tensor> parameters = tensors_of(models[r]), old = tensors_of(stale[r]);
        record.weights_before.push_back(copies(parameters));
        Gradients means, applied;
        for (size_t i = 0; i < parameters.size(); ++i) {
          means.push_back(combine(parts, i, r, work, mutation));
          applied.push_back(by_rank ? combine(clipped, i, r, work, mutation) : means[i]);
          old[i].detach().copy_(parameters[i].detach());
        }
        const double norm = norm_of(means);
        if (r == 0) record.gradients = means;
        if (work.options.clip_norm > 0) record.grad_norm = norm;
        sgd(parameters, applied, by_rank ? 1 : clipping_factor(norm, work.options.clip_norm),
            rate_of_step(work, step, mutation), work, mutation);
        record.weights_after.push_back(copies(parameters));
        record.buffers_before.emplace_back();
        record.buffers.emplace_back();
      }
      on_step(record);
    }
  };
}

}  // namespace troika
