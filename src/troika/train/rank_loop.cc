#include "troika/train/rank_loop.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "troika/base/error.h"
#include "troika/base/interrupt.h"
#include "troika/base/random.h"
#include "troika/base/text.h"

namespace troika::internal {
namespace {

constexpr int64_t kWarmUpSteps = 10;  // first touches of memory and kernels; not in samples_per_s
constexpr int64_t kTracedStep = 20;   // of this process: late enough to be a usual one

/// Intra-op threads of the calling thread, put back at the end: with one rank that is the caller's own
/// thread.
class ThreadCount {
 public:
  explicit ThreadCount(int64_t threads) : before_(at::get_num_threads()) {
    at::set_num_threads(static_cast<int>(threads));
  }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;
  ~ThreadCount() { at::set_num_threads(before_); }

 private:
  int before_;
};

class RankLoop {
 public:
  RankLoop(Run& run, Communicator& communicator)
      : run_(run),
        work_(run.work),
        comm_(communicator),
        lead_(communicator.rank() == 0),
        replica_(communicator, work_.layers, replica_options(work_)),
        at_(run.start) {
    if (run.resumed != nullptr) replica_.load_state(run.resumed->tensors, at_.step);
    if (lead_) describe();
  }

  void run() {
    bool stop = false;
    const int64_t first = at_.step;
    while (!stop && at_.step < work_.total_steps() && !stopped_early()) {
      step(at_.step - first);
      const bool epoch_end = at_.step % work_.steps_per_epoch() == 0;
      if (epoch_end) end_epoch();
      stop = asked_to_stop();
      const bool last = stop || at_.step == work_.total_steps() || stopped_early();
      const int64_t every = work_.recipe.train.checkpoint_every;
      if (lead_ && (epoch_end || last || (every > 0 && at_.step % every == 0))) save();
    }
    finish(stop && at_.step < work_.total_steps() && !stopped_early());
  }

 private:
  void describe();
  void step(int64_t done_here);
  void log(double loss, double samples, double seconds);
  void end_epoch();
  bool asked_to_stop();
  void save();
  void finish(bool stopped);

  bool stopped_early() const {
    const int64_t patience = work_.recipe.train.early_stopping;
    return patience > 0 && at_.epochs_without_better >= patience;
  }

  Run& run_;
  const Workload& work_;
  Communicator& comm_;
  const bool lead_;
  Replica replica_;
  TrainingState at_;  // the same on every rank: made of results that are
  std::vector<RowBuffer> rows_;
  std::vector<Batch> pieces_;
  std::optional<MetricSums> validated_;                               // at at_.step
  double window_loss_ = 0, window_samples_ = 0, window_seconds_ = 0;  // since the last line of the log
  double counted_samples_ = 0, counted_seconds_ = 0;                  // after warm-up
  bool new_best_ = false;
  bool asked_ = false;
};

void RankLoop::describe() {
  int64_t parameters = 0;
  for (const NamedTensor& parameter : replica_.parameters()) parameters += parameter.tensor.numel();
  for (const Layer& layer : work_.layers) run_.report.stage.layers.push_back(layer.name);
  run_.report.stage.parameters = parameters;
  const ParallelRecipe& parallel = work_.recipe.parallel;
  run_.progress.line(fmt::format(
      "model: {}, {} parameters; {} {} of {} samples, loss {}", work_.recipe.model.type,
      with_commas(parameters), with_commas(work_.total_steps()), work_.total_steps() == 1 ? "step" : "steps",
      with_commas(work_.recipe.train.batch), name_of(work_.loss_kind)));
  run_.progress.line(fmt::format("ranks: {} x {} thread{}{}, weights {}; {}", *parallel.ranks,
                                 *parallel.threads_per_rank, *parallel.threads_per_rank == 1 ? "" : "s",
                                 work_.ranks_were_auto ? " (auto: one for each usable core)" : "",
                                 parallel.weights, run_.source.memory_plan()));
}

void RankLoop::step(int64_t done_here) {
  const auto start = Clock::now();
  const StepPlace place = place_of_step(work_, at_.step);
  const int64_t micro_batches = work_.recipe.parallel.micro_batches;
  const int64_t number = at_.step + 1;
  const bool traced =
      run_.options.record_trace && number == std::min(run_.start.step + kTracedStep, work_.total_steps());
  std::vector<Span>* const spans = traced ? &run_.spans[static_cast<size_t>(comm_.rank())] : nullptr;
  if (traced) {
    if (lead_) run_.trace_from = Clock::now();
    comm_.barrier();  // one zero for all
  }
  rows_.resize(static_cast<size_t>(micro_batches));
  pieces_.clear();
  for (int64_t j = 0; j < micro_batches; ++j) {
    const auto load_start = Clock::now();
    RowBuffer& rows = rows_[static_cast<size_t>(j)];
    run_.source.gather(comm_.rank(), place.epoch,
                       piece_of(place.positions, micro_batches, j, comm_.size(), comm_.rank()), rows);
    pieces_.push_back(make_batch(work_, rows));
    if (traced) {
      spans->push_back({comm_.rank(),
                        {Op::load, 0, static_cast<int>(j)},
                        seconds_between(run_.trace_from, load_start),
                        seconds_since(run_.trace_from)});
    }
  }
  // Keyed by the step, so that a resumed run draws the same noise.
  if (work_.recipe.model.dropout > 0)
    at::manual_seed(mix_keys(work_.recipe.train.seed, static_cast<uint64_t>(number)));
  if (lead_ && done_here == 0) run_.report.seconds_to_first_step = seconds_between(run_.begin, start);
  StepProbe probe;
  probe.spans = spans;
  probe.spans_from = run_.trace_from;
  const StepResult result = replica_.step(pieces_, work_.loss, probe);
  at_.step = number;
  at_.epoch_loss += result.loss * result.weight;
  at_.epoch_weight += result.weight;
  validated_.reset();
  const double seconds = seconds_since(start);
  at_.seconds += seconds;
  if (lead_) {
    if (done_here >= std::min(kWarmUpSteps, (work_.total_steps() - run_.start.step) / 2)) {
      counted_samples_ += result.weight;
      counted_seconds_ += seconds;
    }
    log(result.loss, result.weight, seconds);
    if (run_.options.on_step && !run_.options.on_step(number, result.loss)) asked_ = true;
  }
}

void RankLoop::log(double loss, double samples, double seconds) {
  window_loss_ += loss * samples;
  window_samples_ += samples;
  window_seconds_ += seconds;
  const int64_t epoch = (at_.step - 1) / work_.steps_per_epoch() + 1;
  const double rate = window_samples_ / window_seconds_;
  if (run_.progress.due()) {
    run_.progress.update(fmt::format("epoch {}  step {}  loss {:.4g}  {:.0f} samples/s", epoch,
                                     with_commas(at_.step), window_loss_ / window_samples_, rate),
                         static_cast<double>(at_.step - run_.start.step),
                         static_cast<double>(work_.total_steps() - run_.start.step));
  }
  if (at_.step % work_.recipe.train.log_every != 0 && at_.step % work_.steps_per_epoch() != 0 &&
      at_.step != work_.total_steps()) {
    return;
  }
  const nlohmann::ordered_json line{{"step", at_.step},
                                    {"epoch", epoch},
                                    {"loss", loss},
                                    {"samples_per_s", rate},
                                    {"seconds", at_.seconds}};
  run_.dir.append(line.dump());
  window_loss_ = window_samples_ = window_seconds_ = 0;
}

void RankLoop::end_epoch() {
  at_.last_epoch_loss = at_.epoch_loss / at_.epoch_weight;
  at_.epoch_loss = at_.epoch_weight = 0;
  const int64_t epoch = at_.step / work_.steps_per_epoch();
  std::string text = fmt::format("epoch {}: train loss {:.5g}", epoch, at_.last_epoch_loss);
  if (run_.validation != nullptr) {
    comm_.say("evaluating", at_.step);
    validated_ = run_.validation->evaluate(comm_, replica_, at_.step);
    const double loss = validated_->mean_loss();
    new_best_ = loss < at_.best_validation;
    at_.epochs_without_better = new_best_ ? 0 : at_.epochs_without_better + 1;
    at_.best_validation = std::min(at_.best_validation, loss);
    const Metrics metrics = validated_->metrics(work_.features);
    text += fmt::format(", validation loss {:.5g}  {}", loss, to_string(metrics));
    if (lead_) {
      const nlohmann::ordered_json line{
          {"step", at_.step}, {"epoch", epoch}, {"validation_loss", loss}, {"validation", to_json(metrics)}};
      run_.dir.append(line.dump());
    }
  }
  if (lead_) run_.progress.line(text);
}

bool RankLoop::asked_to_stop() {
  // Rank 0 decides and all follow: a rank that stopped by itself would leave the others waiting for it.
  int64_t stop = lead_ && (asked_ || interrupted()) ? 1 : 0;
  if (comm_.size() > 1) comm_.broadcast({&stop, 1, ElementType::int64}, 0);
  return stop != 0;
}

void RankLoop::save() {
  comm_.say("writing a checkpoint", at_.step);
  run_.dir.sync_log();
  write_checkpoint(run_.dir.last(), {replica_.state(), to_metadata(work_, at_)});
  run_.dir.keep();
  if (new_best_) run_.dir.mark_best();
  new_best_ = false;
  comm_.say("after a checkpoint", at_.step);
}

void RankLoop::finish(bool stopped) {
  if (!stopped && run_.validation != nullptr && !validated_) {
    validated_ = run_.validation->evaluate(comm_, replica_, at_.step);
  }
  std::optional<MetricSums> tested;
  if (!stopped && run_.test != nullptr) tested = run_.test->evaluate(comm_, replica_, at_.step);
  if (!lead_) return;
  TrainReport& report = run_.report;
  report.finished = !stopped;
  report.steps = at_.step;
  report.train_loss =
      std::isnan(at_.last_epoch_loss) ? at_.epoch_loss / at_.epoch_weight : at_.last_epoch_loss;
  if (validated_) {
    report.validation_loss = validated_->mean_loss();
    report.validation = validated_->metrics(work_.features);
  }
  if (tested) report.test = tested->metrics(work_.features);
  report.samples_per_s = counted_seconds_ > 0 ? counted_samples_ / counted_seconds_ : 0;
}

}  // namespace

void train_rank(Run& run, Communicator& communicator) {
  const ThreadCount threads(*run.work.recipe.parallel.threads_per_rank);
  RankLoop(run, communicator).run();
}

}  // namespace troika::internal
