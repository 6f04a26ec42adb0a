#include "troika/train/verify_delayed.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "troika/comm/rank_group.h"
#include "troika/parallel/delayed_reference.h"
#include "troika/parallel/named_gather.h"
#include "troika/parallel/recompute.h"
#include "troika/schedule/schedule_file.h"
#include "troika/schedule/weight_versions.h"
#include "troika/train/verify_comparison.h"
#include "troika/train/verify_pieces.h"

namespace troika {
namespace {

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
    for (const std::vector<at::Tensor>& weights : history_) {
      MicroBatchedReference reference(work_.layers, options_, work_.ranks);
      std::vector<at::Tensor> gradients;
      reference.step(pieces, work_.loss, &gradients, &weights);
      if (close(gradients[parameter], gradient, cause_tolerance(options_.dtype))) return true;
    }
    return false;
  }

 private:
  const VerifyWork& work_;
  ReplicaOptions options_;
  std::deque<std::vector<at::Tensor>> history_;
};

/// What the ranks had after one step, or before the first; filled by all lanes.
struct Moment {
  explicit Moment(size_t data_ranks) : weights(data_ranks), buffers(data_ranks), gradients(data_ranks) {}
  double loss = 0, grad_norm = 0;  // written by rank 0
  FromLanes weights, buffers, gradients;
};

Batch without_tensors(const Batch& batch) {
  Batch out;
  out.samples = batch.samples;
  out.first_sample = batch.first_sample;
  return out;
}

}  // namespace

Lag lag_of_work(const VerifyWork& work) {
  const PipelineOptions& pipeline = *work.options.pipeline;
  if (is_in_catalogue(work.schedule)) {
    return lag_of(work.schedule, std::ssize(pipeline.starts), pipeline.vertical_sync);
  }
  const Schedule window = pipeline.window(static_cast<int>(work.steps));
  std::vector<std::vector<int>> versions;  // by stage and step
  for (int stage = 0; stage < window.num_stages(); ++stage) {
    versions.push_back(versions_of_forwards(window, stage, pipeline.vertical_sync));
  }
  return [versions](int64_t stage, int64_t t) {
    return t - versions[static_cast<size_t>(stage)][static_cast<size_t>(t)];
  };
}

std::optional<Difference> compare_with_delayed(const VerifyWork& work, at::ScalarType dtype,
                                               const Engine& engine, VerifyResult& result) {
  ReplicaOptions options = work.options;
  options.dtype = dtype;
  DelayedReference reference(work.layers, options.pipeline->starts, options, work.ranks, lag_of_work(work));
  MicroBatchedReference& newest = reference.newest();
  const std::vector<std::string> names = names_of(newest.parameters()), buffers = names_of(newest.others());
  Comparison comparison(result, result.tolerance, names, buffers);
  OtherWeights others(work, options);
  engine(work, dtype, [&](const StepRecord& record) {
    const bool found_before = comparison.found();
    if (record.step == 1) comparison.initial_weights(record, tensors_of(newest.parameters()));
    const std::vector<std::vector<Batch>> pieces = pieces_of_ranks(work, record.step - 1, dtype);
    if (work.learning_rate) newest.set_learning_rate(work.learning_rate(record.step - 1));
    others.before_step(newest.parameters());
    std::vector<at::Tensor> gradients;
    const NoRecompute keeping_everything;
    const StepResult step = reference.step(record.step - 1, pieces, work.loss, &gradients);
    comparison.step(record, {step.loss, step.grad_norm, std::move(gradients), tensors_of(newest.parameters()),
                             tensors_of(newest.others())});
    if (!comparison.found() || found_before || comparison.first()->likely_cause != "unknown") return;
    Difference& first = *comparison.first();
    if (first.what != "gradients" && first.what != "loss") return;
    // A loss that differs has gradients that show why.
    const size_t parameter =
        first.what == "gradients"
            ? static_cast<size_t>(std::ranges::find(names, first.parameter) - names.begin())
            : names.size() - 1;
    if (others.explain(record.gradients[parameter], parameter, pieces)) {
      first.likely_cause = "stale_or_new_weights";
    }
  });
  return comparison.first();
}

void run_window_engine(const VerifyWork& work, at::ScalarType dtype,
                       const std::function<void(const StepRecord&)>& on_step) {
  ReplicaOptions options = work.options;
  options.dtype = dtype;
  if (options.mesh.data == 0) options.mesh.data = work.ranks;
  const auto ranks = static_cast<size_t>(options.mesh.data * options.mesh.tensor);
  std::deque<Moment> moments;
  for (int64_t step = 0; step <= work.steps; ++step) moments.emplace_back(ranks);
  GroupOptions group;
  group.deadline_seconds = kVerifyDeadlineSeconds;
  run_thread_ranks(options.mesh.ranks(), group, [&](Communicator& communicator) {
    at::set_num_threads(work.threads_per_rank);
    const int data_rank = options.mesh.coordinate(communicator.rank()).data;
    const size_t rank = recorded_rank(options.mesh, communicator.rank());
    Replica replica(communicator, work.layers, options);
    std::vector<at::Tensor> mean;
    const auto note = [&](Moment& moment) {
      moment.weights.put(rank, replica.parameters(), copies_of(replica.in_whole(replica.parameters())));
      moment.buffers.put(rank, replica.others(), copies_of(replica.in_whole(replica.others())));
    };
    note(moments[0]);
    communicator.barrier();  // no update before every rank has copied
    std::vector<std::vector<Batch>> pieces;
    for (int64_t step = 0; step < work.steps; ++step) {
      pieces.push_back(pieces_of_rank(work, step, data_rank, dtype));
    }
    Window window;
    window.steps = work.steps;
    window.pieces = [&](int64_t step) {
      std::vector<Batch> places;
      for (const Batch& piece : pieces[static_cast<size_t>(step)]) places.push_back(without_tensors(piece));
      return places;
    };
    window.load = [&](int64_t step, int64_t micro_batch) {
      return pieces[static_cast<size_t>(step)][static_cast<size_t>(micro_batch)];
    };
    window.learning_rate = work.learning_rate;
    window.on_step = [&](int64_t step, const StepResult& result) {
      Moment& moment = moments[static_cast<size_t>(step) + 1];
      note(moment);
      moment.gradients.put(rank, replica.parameters(),
                           tensors_of(replica.in_whole(as_named(replica.parameters(), mean))));
      if (communicator.rank() != 0) return;
      moment.loss = result.loss;
      moment.grad_norm = result.grad_norm;  // the first stage's
    };
    StepProbe probe;
    probe.mean_gradients = &mean;
    replica.run_window(window, work.loss, probe);
  });
  const Model whole(work.layers, options.seed, dtype);  // for the order of its tensors
  for (size_t step = 1; step < moments.size(); ++step) {
    const Moment &before = moments[step - 1], &after = moments[step];
    on_step({static_cast<int64_t>(step), after.loss, after.grad_norm, before.weights.all(whole.parameters()),
             after.weights.all(whole.parameters()), before.buffers.all(whole.others()),
             after.buffers.all(whole.others()), after.gradients.of_rank(0, whole.parameters())});
  }
}

}  // namespace troika
