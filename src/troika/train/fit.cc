#include "troika/train/fit.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "troika/base/cpu.h"
#include "troika/base/error.h"
#include "troika/base/random.h"
#include "troika/base/split.h"
#include "troika/comm/rank_group.h"
#include "troika/parallel/batch_norm.h"

namespace troika {
namespace {

constexpr uint64_t kOrderKey = 0x66697420;  // keeps the order apart from other uses of the seed

void check_sizes(const Tensors& inputs, const at::Tensor& target, const FitOptions& options) {
  if (inputs.empty())
    fail_usage("fit: no inputs; give at least one tensor whose first dimension is the samples");
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].dim() == 0 || target.dim() == 0 || inputs[i].size(0) != target.size(0)) {
      fail_usage(
          "fit: input {} has shape {}, the target {}; their first dimensions, the samples, must be the same",
          i, c10::str(inputs[i].sizes()), c10::str(target.sizes()));
    }
  }
  if (options.batch < 1 || options.epochs < 0 || options.micro_batches < 1 || options.ranks < 0) {
    fail_usage("fit: batch {}, epochs {}, micro_batches {}, ranks {}: expected at least 1, 0, 1 and 0",
               options.batch, options.epochs, options.micro_batches, options.ranks);
  }
}

class Samples {
 public:
  Samples(const Tensors& inputs, const at::Tensor& target, uint64_t seed)
      : inputs_(inputs), target_(target), seed_(seed) {}

  int64_t size() const { return target_.size(0); }

  /// The samples at `positions` of the epoch's order, in a global batch that begins at `begin`.
  Batch batch(int64_t epoch, Range positions, int64_t begin) const {
    const Permutation order(static_cast<uint64_t>(size()),
                            mix_keys(mix_keys(seed_, kOrderKey), static_cast<uint64_t>(epoch)));
    at::Tensor rows = at::empty({positions.size()}, at::kLong);
    int64_t* row = rows.mutable_data_ptr<int64_t>();
    for (int64_t p = positions.begin; p < positions.end; ++p) {
      *row++ = static_cast<int64_t>(order(static_cast<uint64_t>(p)));
    }
    Batch out;
    for (const at::Tensor& input : inputs_) out.inputs.push_back(input.index_select(0, rows));
    out.target = target_.index_select(0, rows);
    out.samples = positions.size();
    out.first_sample = positions.begin - begin;
    return out;
  }

 private:
  const Tensors& inputs_;
  const at::Tensor& target_;
  uint64_t seed_;
};

double train_epoch(Replica& replica, Communicator& communicator, const Samples& samples, const Loss& loss,
                   int64_t epoch, const FitOptions& options) {
  double sum = 0, weight = 0;
  for (int64_t begin = 0; begin < samples.size(); begin += options.batch) {
    const Range global{begin, std::min(begin + options.batch, samples.size())};
    std::vector<Batch> pieces;
    for (int64_t j = 0; j < options.micro_batches; ++j) {
      const Range part = piece_of(global, options.micro_batches, j, communicator.size(), communicator.rank(),
                                  std::max<int64_t>(1, options.replica.batch_norm_group));
      pieces.push_back(samples.batch(epoch, part, global.begin));
    }
    const StepResult result = replica.step(pieces, loss);
    sum += result.loss * result.weight;
    weight += result.weight;
  }
  return weight > 0 ? sum / weight : 0;
}

void copy_weights(const std::vector<NamedTensor>& from, const std::vector<NamedTensor>& to) {
  for (size_t i = 0; i < from.size(); ++i) to[i].tensor.detach().copy_(from[i].tensor);
}

}  // namespace

Loss per_sample_loss(std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> of_sample) {
  return [of_sample = std::move(of_sample)](const Tensors& outputs, const Batch& batch) {
    at::Tensor losses = of_sample(outputs.at(0), batch.target);
    if (losses.dim() == 0 || losses.size(0) != batch.samples) {
      fail_usage("loss: shape {} for {} samples; return one loss per sample ([samples, ...]), not their mean",
                 c10::str(losses.sizes()), batch.samples);
    }
    if (losses.dim() > 1) losses = losses.flatten(1).mean(1);
    return LossValue{losses.sum(), static_cast<double>(batch.samples)};
  };
}

FitResult fit(const std::vector<Layer>& layers, const Loss& loss, const Tensors& inputs,
              const at::Tensor& target, const FitOptions& options) {
  check_sizes(inputs, target, options);
  const int ranks = options.ranks > 0 ? options.ranks : usable_cores();
  const Samples samples(inputs, target, options.replica.seed);
  FitResult result{{}, Model(layers, options.replica.seed, options.replica.dtype)};
  if (const std::string name = result.model.first_batch_norm(); !name.empty()) {
    check_batch_norm_group(name, std::min(options.batch, samples.size()), options.replica.batch_norm_group,
                           ranks, options.micro_batches);
  }
  run_thread_ranks(ranks, {}, [&](Communicator& communicator) {
    at::set_num_threads(std::max(1, usable_cores() / ranks));
    Replica replica(communicator, layers, options.replica);
    for (int64_t epoch = 1; epoch <= options.epochs; ++epoch) {
      const double mean = train_epoch(replica, communicator, samples, loss, epoch, options);
      int64_t go_on = 1;
      if (communicator.rank() == 0) {
        result.losses.push_back(mean);
        go_on = options.on_epoch ? options.on_epoch(epoch, mean) : true;
      }
      communicator.broadcast({&go_on, 1, ElementType::int64}, 0);
      if (go_on == 0) break;
    }
    if (communicator.rank() == 0) {
      copy_weights(replica.parameters(), result.model.parameters());
      copy_weights(replica.others(), result.model.others());
    }
    communicator.barrier();  // shared weights live on rank 0: they must outlast the other ranks
  });
  result.model.train(false);
  return result;
}

}  // namespace troika
