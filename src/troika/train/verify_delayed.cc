#include "troika/train/verify_delayed.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>

#include "troika/base/error.h"
#include "troika/comm/rank_group.h"
#include "troika/parallel/delayed_reference.h"
#include "troika/parallel/recompute.h"
#include "troika/schedule/schedule_file.h"
#include "troika/schedule/weight_versions.h"
#include "troika/train/verify_comparison.h"
#include "troika/train/verify_pieces.h"

namespace troika {
namespace {

constexpr double kWindowDeadlineSeconds = 600;  // as in run_engine

using ByName = std::map<std::string, at::Tensor>;

ByName copies_by_name(const std::vector<NamedTensor>& named) {
  ByName out;
  for (const NamedTensor& each : named) out[each.name] = each.tensor.detach().clone();
  return out;
}

std::vector<at::Tensor> in_order(const ByName& values, const std::vector<NamedTensor>& order) {
  std::vector<at::Tensor> out;
  for (const NamedTensor& each : order) out.push_back(values.at(each.name));
  return out;
}

/// What the ranks had after one step, or before the first; filled by all lanes.
struct Moment {
  double loss = 0, grad_norm = 0;
  std::vector<ByName> weights, buffers;  // by data rank
  ByName gradients;                      // data rank 0's
};

Batch without_tensors(const Batch& batch) {
  Batch out;
  out.samples = batch.samples;
  out.first_sample = batch.first_sample;
  return out;
}

// By the law that the schedule's name stands for; of a file's schedule, by what it says itself.
Lag lag_of_work(const VerifyWork& work) {
  const PipelineOptions& pipeline = *work.options.pipeline;
  if (is_in_catalogue(work.schedule)) {
    return lag_of(work.schedule, std::ssize(pipeline.starts), pipeline.vertical_sync);
  }
  const Schedule window = pipeline.window(static_cast<int>(work.steps));
  return [window, vertical = pipeline.vertical_sync](int64_t stage, int64_t t) {
    return t - versions_of_forwards(window, static_cast<int>(stage), vertical)[static_cast<size_t>(t)];
  };
}

std::vector<std::string> names_of(const std::vector<NamedTensor>& named) {
  std::vector<std::string> names;
  for (const NamedTensor& each : named) names.push_back(each.name);
  return names;
}

/// Whether a gradient is that of the same step at the weights of some other update, in all stages alike.
class OtherWeights {
 public:
  OtherWeights(const VerifyWork& work, ReplicaOptions options) : work_(work), options_(std::move(options)) {
    options_.optimizer = {.kind = Optimizer::Kind::sgd, .learning_rate = 0};
    options_.clip_norm = 0;
  }

  void before_step(const std::vector<NamedTensor>& weights) {
    std::vector<at::Tensor>& now = history_.emplace_back();
    for (const NamedTensor& weight : weights) now.push_back(weight.tensor.clone());
    if (std::ssize(history_) > std::ssize(work_.options.pipeline->starts) + 1) history_.pop_front();
  }

  bool explain(const at::Tensor& gradient, size_t parameter,
               const std::vector<std::vector<Batch>>& pieces) const {
    const double tolerance = options_.dtype == at::kDouble ? 1e-8 : 1e-4;  // above rounding, below mistakes
    for (const std::vector<at::Tensor>& weights : history_) {
      MicroBatchedReference reference(work_.layers, options_, work_.ranks);
      std::vector<at::Tensor> gradients;
      reference.step(pieces, work_.loss, &gradients, &weights);
      const double away = largest(gradients[parameter].to(at::kDouble) - gradient.to(at::kDouble));
      if (away <= tolerance * largest(gradient)) return true;
    }
    return false;
  }

 private:
  const VerifyWork& work_;
  ReplicaOptions options_;
  std::deque<std::vector<at::Tensor>> history_;
};

std::optional<Difference> compare(const VerifyWork& work, at::ScalarType dtype, double tolerance,
                                  const Engine& engine, VerifyResult& result) {
  ReplicaOptions options = work.options;
  options.dtype = dtype;
  DelayedReference reference(work.layers, options.pipeline->starts, options, work.ranks, lag_of_work(work));
  MicroBatchedReference& newest = reference.newest();
  const std::vector<std::string> names = names_of(newest.parameters()), buffers = names_of(newest.others());
  Comparison comparison(result, tolerance, names, buffers);
  OtherWeights others(work, options);
  engine(work, dtype, [&](const StepRecord& record) {
    if (record.step == 1) {
      for (const auto& weights : record.weights_before) {
        comparison.tensors(0, "weights", weights, tensors_of(newest.parameters()));
        if (comparison.found()) comparison.first()->likely_cause = "initial_weights";
      }
    }
    std::vector<std::vector<Batch>> pieces;
    for (int rank = 0; rank < work.ranks; ++rank) {
      pieces.push_back(pieces_of_rank(work, record.step - 1, rank, dtype));
    }
    if (work.learning_rate) newest.set_learning_rate(work.learning_rate(record.step - 1));
    const bool found_before = comparison.found();
    others.before_step(newest.parameters());
    std::vector<at::Tensor> gradients;
    const NoRecompute keeping_everything;
    const StepResult step = reference.step(record.step - 1, pieces, work.loss, &gradients);
    comparison.loss(record.step, record.loss, step.loss);
    comparison.tensors(record.step, "gradients", record.gradients, gradients);
    if (comparison.found() && !found_before && comparison.first()->step == record.step) {
      Difference& first = *comparison.first();
      // A loss that differs has gradients that show why.
      const size_t parameter =
          first.what == "gradients"
              ? static_cast<size_t>(std::ranges::find(names, first.parameter) - names.begin())
              : names.size() - 1;
      if (others.explain(record.gradients[parameter], parameter, pieces)) {
        first.likely_cause = "stale_or_new_weights";
      }
    }
    comparison.number(record.step, "grad_norm", record.grad_norm, step.grad_norm);
    for (const auto& weights : record.weights_after) {
      comparison.tensors(record.step, "weights", weights, tensors_of(newest.parameters()));
    }
    for (const auto& of_rank : record.buffers) {
      comparison.tensors(record.step, "buffers", of_rank, tensors_of(newest.others()));
    }
  });
  return comparison.first();
}

}  // namespace

void run_window_engine(const VerifyWork& work, at::ScalarType dtype,
                       const std::function<void(const StepRecord&)>& on_step) {
  ReplicaOptions options = work.options;
  options.dtype = dtype;
  if (options.mesh.data == 0) options.mesh.data = work.ranks;
  const auto ranks = static_cast<size_t>(options.mesh.data);
  std::vector<Moment> moments(static_cast<size_t>(work.steps) + 1);
  for (Moment& moment : moments) moment.weights.resize(ranks), moment.buffers.resize(ranks);
  std::mutex mutex;
  GroupOptions group;
  group.deadline_seconds = kWindowDeadlineSeconds;
  run_thread_ranks(options.mesh.ranks(), group, [&](Communicator& communicator) {
    at::set_num_threads(work.threads_per_rank);
    const Coordinate at = options.mesh.coordinate(communicator.rank());
    Replica replica(communicator, work.layers, options);
    std::vector<at::Tensor> mean;
    const auto note = [&](size_t place) {
      const std::lock_guard lock(mutex);
      Moment& moment = moments[place];
      const auto rank = static_cast<size_t>(at.data);
      moment.weights[rank].merge(copies_by_name(replica.parameters()));
      moment.buffers[rank].merge(copies_by_name(replica.others()));
      if (at.data != 0) return;
      for (size_t i = 0; i < mean.size(); ++i) moment.gradients[replica.parameters()[i].name] = mean[i];
    };
    note(0);
    communicator.barrier();  // no update before every rank has copied
    Window window;
    window.steps = work.steps;
    window.pieces = [&](int64_t step) {
      std::vector<Batch> pieces;
      for (const Batch& batch : pieces_of_rank(work, step, at.data, dtype)) {
        pieces.push_back(without_tensors(batch));
      }
      return pieces;
    };
    window.load = [&](int64_t step, int64_t micro_batch) {
      return pieces_of_rank(work, step, at.data, dtype)[static_cast<size_t>(micro_batch)];
    };
    window.learning_rate = work.learning_rate;
    window.on_step = [&](int64_t step, const StepResult& result) {
      const auto place = static_cast<size_t>(step) + 1;
      note(place);
      if (communicator.rank() != 0) return;
      const std::lock_guard lock(mutex);
      moments[place].loss = result.loss;
      moments[place].grad_norm = result.grad_norm;  // the first stage's
    };
    StepProbe probe;
    probe.mean_gradients = &mean;
    replica.run_window(window, work.loss, probe);
  });
  const Model whole(work.layers, options.seed, dtype);  // for the order of its tensors
  for (size_t step = 1; step < moments.size(); ++step) {
    const Moment &before = moments[step - 1], &after = moments[step];
    StepRecord record;
    record.step = static_cast<int64_t>(step);
    record.loss = after.loss;
    record.grad_norm = after.grad_norm;
    record.gradients = in_order(after.gradients, whole.parameters());
    for (size_t rank = 0; rank < ranks; ++rank) {
      record.weights_before.push_back(in_order(before.weights[rank], whole.parameters()));
      record.weights_after.push_back(in_order(after.weights[rank], whole.parameters()));
      record.buffers_before.push_back(in_order(before.buffers[rank], whole.others()));
      record.buffers.push_back(in_order(after.buffers[rank], whole.others()));
    }
    on_step(record);
  }
}

VerifyResult verify_delayed(const VerifyWork& work, at::ScalarType precision, const Engine& engine) {
  VerifyResult result;
  result.reference = "delayed";
  result.tolerance = precision == at::kDouble ? 1e-10 : 1e-5;
  VerifyWork exact = work;  // as in the comparison with a plain run
  exact.options.bf16 = false;
  const std::optional<Difference> within = compare(exact, precision, result.tolerance, engine, result);
  VerifyResult differences;  // its maxima are not those of the other comparison
  const std::optional<Difference> bits = compare(work, work.options.dtype, 0, engine, differences);
  result.equal = !within;
  result.bitwise = !bits;
  result.first_difference = within ? within : bits;
  return result;
}

}  // namespace troika
