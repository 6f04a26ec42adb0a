#include "troika/train/rank_loop.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "troika/base/error.h"
#include "troika/base/interrupt.h"
#include "troika/base/text.h"
#include "troika/parallel/torch_errors.h"
#include "troika/schedule/partition.h"
#include "troika/train/rate_schedule.h"
#include "troika/train/run_log.h"
#include "troika/train/stage_meters.h"
#include "troika/train/step_pieces.h"
#include "troika/train/weights_file.h"

namespace troika::internal {
namespace {

constexpr int64_t kWarmUpSteps = 10;        // first touches of memory and kernels; not in samples_per_s
constexpr int64_t kTracedStep = 20;         // of this process: late enough to be a usual one
constexpr int64_t kMostTracedSteps = 1000;  // a longer window is not recorded: nobody would look at it

class RankLoop {
 public:
  RankLoop(Run& run, Communicator& communicator)
      : run_(run),
        work_(run.work),
        comm_(communicator),
        lead_(communicator.rank() == 0),
        saves_(work_.mesh().coordinate(communicator.rank()).data == 0),
        memory_(work_, communicator.rank()),
        replica_(communicator, work_.layers, memory_.options(work_)),
        steps_(work_, run.source, work_.mesh(), communicator.rank()),
        log_(work_, run.dir, run.events, run.progress, run.start.step),
        at_(run.start) {
    if (run.resumed != nullptr) {
      replica_.load_state(run.resumed->tensors, at_.step);
    } else if (!work_.recipe.train.start_from.empty()) {
      begin_with_given_weights();
    }
    if (lead_) describe();
  }

  void run() {
    bool stop = false;
    const int64_t total = work_.total_steps();
    while (!stop && at_.step < total && !stopped_early()) {
      memory_.begin_step();
      work_.is_asynchronous() ? window() : step();
      memory_.end_step();
      const bool epoch_end = at_.step % work_.steps_per_epoch() == 0;
      if (epoch_end) end_epoch();
      if (run_.validation != nullptr && (epoch_end || at_.step == total)) validate(epoch_end);
      stop = asked_to_stop();
      const bool last = stop || at_.step == total || stopped_early();
      const int64_t every = work_.recipe.train.checkpoint_every;
      if (saves_ && (epoch_end || last || (every > 0 && at_.step % every == 0))) save();
    }
    const bool stopped = stop && at_.step < total && !stopped_early();
    if (!stopped) finish();
    const std::vector<int64_t> most_bytes = memory_.gathered(comm_);
    if (lead_) report(!stopped, most_bytes);
    if (comm_.size() > 1) comm_.barrier();  // shared weights live on rank 0: they must outlast the others
  }

 private:
  void begin_with_given_weights();
  void load_given(int64_t steps_done);
  void describe();
  StepProbe probe_of(int64_t steps);
  void step();
  void window();
  double rate_of(int64_t step) const;
  void note_first_step(Clock::time_point start);
  void note_step(const StepResult& result, double seconds, double data_seconds);
  void end_epoch();
  void validate(bool epoch_end);
  MetricSums evaluate(const Evaluator& evaluator, const char* what, int64_t round);
  bool asked_to_stop();
  void save();
  void take_best_weights();
  void finish();
  void report(bool finished, const std::vector<int64_t>& most_bytes);

  bool stopped_early() const {
    const int64_t patience = work_.recipe.train.early_stopping;
    return patience > 0 && at_.epochs_without_better >= patience;
  }

  Run& run_;
  const Workload& work_;
  Communicator& comm_;
  const bool lead_;
  const bool saves_;  // is one of the ranks whose stages and slices together are the model
  StageMeters memory_;
  Replica replica_;
  StepPieces steps_;
  RunLog log_;                                        // rank 0's
  TrainingState at_;                                  // the same on every rank: made of results that are
  std::optional<MetricSums> validated_, tested_;      // of the weights as they are now
  double counted_samples_ = 0, counted_seconds_ = 0;  // after warm-up
  bool new_best_ = false;
  bool asked_ = false, said_draining_ = false;
};

void RankLoop::begin_with_given_weights() {
  const TrainRecipe& train = work_.recipe.train;
  std::vector<NamedTensor> own;
  if (saves_) own = replica_.state();
  if (lead_) {
    comm_.say("reading the weights to start from", 0);
    run_.given = std::move(own);
    start_state_from(train.start_from, train.start_fresh, run_.given);
    run_.progress.line(fmt::format("weights: from {}", train.start_from));
  }
  load_given(0);
}

// One rank reads, so that there is one copy of what was read.
void RankLoop::load_given(int64_t steps_done) {
  if (comm_.size() > 1) comm_.barrier();
  replica_.load_state(run_.given, steps_done);
  if (comm_.size() > 1) comm_.barrier();
  if (lead_) run_.given.clear();
}

void RankLoop::describe() {
  const std::vector<int64_t>& weights = replica_.weights_of_stages();
  const int64_t parameters = std::accumulate(weights.begin(), weights.end(), int64_t{0});
  const std::vector<int64_t> starts = work_.starts();
  for (size_t stage = 0; stage < weights.size(); ++stage) {
    StageReport& report = run_.report.stages.emplace_back();
    report.parameters = weights[stage];
    const Range layers = layers_of_stage(starts, stage, work_.layers.size());
    for (int64_t i = layers.begin; i < layers.end; ++i) {
      report.layers.push_back(work_.layers[static_cast<size_t>(i)].name);
    }
  }
  const ParallelRecipe& parallel = work_.recipe.parallel;
  run_.progress.line(fmt::format(
      "model: {}, {} parameters; {} {} of {} samples, loss {}", work_.recipe.model.type,
      with_commas(parameters), with_commas(work_.total_steps()), work_.total_steps() == 1 ? "step" : "steps",
      with_commas(work_.recipe.train.batch), name_of(work_.loss_kind)));
  run_.progress.line(fmt::format("ranks: {} x {} thread{}{}, weights {}; {}", *parallel.ranks,
                                 *parallel.threads_per_rank, *parallel.threads_per_rank == 1 ? "" : "s",
                                 work_.ranks_were_auto ? " (auto)" : "", parallel.weights,
                                 run_.source.memory_plan()));
}

// Spans of one usual step, or of the window that it is in.
StepProbe RankLoop::probe_of(int64_t steps) {
  const int64_t traced = std::min(run_.start.step + kTracedStep, work_.total_steps());
  const bool wanted = run_.options.record_trace || work_.mesh().pipeline > 1;
  StepProbe probe;
  if (!wanted || traced <= at_.step || traced > at_.step + steps || steps > kMostTracedSteps) return probe;
  if (lead_) {
    run_.trace_from = Clock::now();
    run_.report.traced_steps = steps;
  }
  comm_.barrier();  // one zero for all
  probe.spans = &run_.spans[static_cast<size_t>(comm_.rank())];
  probe.spans_from = run_.trace_from;
  return probe;
}

void RankLoop::step() {
  const auto start = Clock::now();
  const StepProbe probe = probe_of(1);
  std::function<void(int64_t, Clock::time_point)> loaded;
  if (probe.spans != nullptr) {
    loaded = [&](int64_t micro_batch, Clock::time_point from) {
      probe.spans->push_back({comm_.rank(),
                              {Op::load, memory_.first_stage(), static_cast<int>(micro_batch)},
                              seconds_between(probe.spans_from, from),
                              seconds_since(probe.spans_from)});
    };
  }
  const std::vector<Batch>* pieces = nullptr;
  {
    const MeterScope memory(memory_.of_inputs());
    pieces = &steps_.of(at_.step, loaded);
  }
  note_first_step(start);
  replica_.set_learning_rate(rate_of(at_.step));
  const double data_seconds = seconds_since(start);
  const StepResult result = replica_.step(*pieces, work_.loss, probe);
  note_step(result, seconds_since(start), data_seconds);
}

// The steps of an asynchronous schedule until it drains.
void RankLoop::window() {
  const int64_t first = at_.step, end = first + window_steps(work_, first);
  Window window;
  window.steps = end - first;
  window.pieces = [&](int64_t step) { return steps_.places_of(first + step); };
  auto last_step = Clock::now();
  double data_seconds = 0;
  window.load = [&](int64_t step, int64_t micro_batch) {
    const auto from = Clock::now();
    const Batch batch = steps_.of(first + step)[static_cast<size_t>(micro_batch)];
    data_seconds += seconds_since(from);
    return batch;
  };
  window.learning_rate = [&](int64_t step) { return rate_of(first + step); };
  window.on_step = [&](int64_t step, const StepResult& result) {
    if (step == 0) note_first_step(last_step);
    note_step(result, seconds_since(last_step), std::exchange(data_seconds, 0.0));
    last_step = Clock::now();
    if (lead_ && !said_draining_ && interrupted() && at_.step < end) {
      said_draining_ = true;
      run_.progress.line(
          fmt::format("stopping once the {} steps under way are done; Ctrl-C again stops at once",
                      with_commas(end - at_.step)));
    }
  };
  replica_.run_window(window, work_.loss, probe_of(window.steps));
}

double RankLoop::rate_of(int64_t step) const {
  return learning_rate_at(work_.recipe.train, step, work_.total_steps());
}

void RankLoop::note_first_step(Clock::time_point start) {
  if (lead_ && at_.step == run_.start.step) {
    run_.report.seconds_to_first_step = seconds_between(run_.begin, start);
  }
}

void RankLoop::note_step(const StepResult& result, double seconds, double data_seconds) {
  const int64_t done_here = at_.step - run_.start.step;
  const int64_t samples = place_of_step(work_, at_.step).positions.size();
  const double rate = rate_of(at_.step);
  ++at_.step;
  at_.epoch_loss += result.loss * result.weight;
  at_.epoch_weight += result.weight;
  validated_.reset();
  at_.seconds += seconds;
  if (!lead_) return;
  if (done_here >= std::min(kWarmUpSteps, (work_.total_steps() - run_.start.step) / 2)) {
    counted_samples_ += static_cast<double>(samples);
    counted_seconds_ += seconds;
  }
  log_.step({at_.step, result.loss, samples, seconds, at_.seconds, data_seconds, result.waited_seconds, rate,
             result.grad_norm});
  if (run_.options.on_step && !run_.options.on_step(at_.step, result.loss)) asked_ = true;
}

void RankLoop::end_epoch() {
  at_.last_epoch_loss = at_.epoch_weight > 0 ? at_.epoch_loss / at_.epoch_weight : 0;
  at_.epoch_loss = at_.epoch_weight = 0;
  if (lead_ && run_.validation == nullptr) {
    run_.progress.line(
        fmt::format("epoch {}: train loss {:.5g}", at_.step / work_.steps_per_epoch(), at_.last_epoch_loss));
  }
}

// At the end of every epoch, and of a run that ends within one: it has a best too, but that is no epoch
// without a better one.
void RankLoop::validate(bool epoch_end) {
  validated_ = evaluate(*run_.validation, "validation", at_.step);
  const double loss = validated_->mean_loss();
  new_best_ = loss < at_.best_validation;
  if (new_best_) {
    at_.best_validation = loss;
    at_.best_step = at_.step;
    at_.epochs_without_better = 0;
  } else if (epoch_end) {
    ++at_.epochs_without_better;
  }
  if (!lead_) return;
  const Metrics metrics = validated_->metrics(work_.features);
  const int64_t epoch = (at_.step - 1) / work_.steps_per_epoch() + 1;
  log_.validation(at_.step, epoch, loss, metrics);
  const double train_loss = epoch_end ? at_.last_epoch_loss : at_.epoch_loss / at_.epoch_weight;
  run_.progress.line(fmt::format("epoch {}: train loss {:.5g}, validation loss {:.5g}  {}{}", epoch,
                                 train_loss, loss, to_string(metrics), new_best_ ? "  best" : ""));
}

MetricSums RankLoop::evaluate(const Evaluator& evaluator, const char* what, int64_t round) {
  const auto start = Clock::now();
  comm_.say(fmt::format("evaluating the {} rows", what), at_.step);
  const auto on_progress = [&](int64_t done, int64_t total) {
    if (lead_) log_.evaluating(what, at_.step, done, total);
  };
  MetricSums sums = evaluator.evaluate(replica_.data_ranks(), replica_, round, on_progress, comm_.rank());
  if (lead_) log_.evaluated(seconds_since(start));
  return sums;
}

bool RankLoop::asked_to_stop() {
  // Rank 0 decides and all follow: a rank that stopped by itself would leave the others waiting for it.
  int64_t stop = lead_ && (asked_ || interrupted()) ? 1 : 0;
  if (comm_.size() > 1) comm_.broadcast({&stop, 1, ElementType::int64}, 0);
  return stop != 0;
}

void RankLoop::save() {
  const auto start = Clock::now();
  comm_.say("writing a checkpoint", at_.step);
  std::vector<NamedTensor> state = replica_.state();
  if (!lead_) return;
  log_.sync();
  write_checkpoint(run_.dir.last(), {std::move(state), to_metadata(work_, at_)});
  run_.dir.keep();
  if (new_best_) run_.dir.mark_best();
  new_best_ = false;
  comm_.say("after a checkpoint", at_.step);
  log_.saved(seconds_since(start));
}

// What is reported and written at the end is the best by validation, if that isn't the last.
void RankLoop::take_best_weights() {
  if (at_.best_step == 0 || at_.best_step == at_.step) return;
  if (lead_) {
    comm_.say("reading the best weights", at_.step);
    run_.given = read_checkpoint(run_.dir.best()).tensors;
  }
  load_given(at_.best_step);
  validated_.reset();
}

void RankLoop::finish() {
  if (run_.validation != nullptr) take_best_weights();
  std::vector<NamedTensor> state;  // of the whole model
  if (saves_ && work_.ranks() > work_.mesh().data) state = replica_.state();
  if (lead_) {
    const int64_t step = at_.best_step > 0 && run_.validation != nullptr ? at_.best_step : at_.step;
    run_.report.weights_step = step;
    comm_.say("writing the weights", at_.step);
    const StateWeights weights =
        state.empty() ? StateWeights{replica_.parameters(), replica_.others()} : weights_of_state(state);
    write_weights(run_.dir.model(), weights.parameters, weights.others, {{"step", std::to_string(step)}});
  }
  // Rounds of evaluation grow: at_.step is the one of the last step's.
  if (run_.validation != nullptr && !validated_) {
    validated_ = evaluate(*run_.validation, "validation", at_.step + 1);
  }
  if (run_.test != nullptr) tested_ = evaluate(*run_.test, "test", at_.step + 1);
}

void RankLoop::report(bool finished, const std::vector<int64_t>& most_bytes) {
  TrainReport& report = run_.report;
  for (size_t stage = 0; stage < most_bytes.size(); ++stage)
    report.stages.at(stage).peak_bytes = most_bytes[stage];
  report.finished = finished;
  report.steps = at_.step;
  report.train_loss =
      std::isnan(at_.last_epoch_loss) ? at_.epoch_loss / at_.epoch_weight : at_.last_epoch_loss;
  if (validated_) {
    report.validation_loss = validated_->mean_loss();
    report.validation = validated_->metrics(work_.features);
  }
  if (tested_) report.test = tested_->metrics(work_.features);
  report.samples_per_s = counted_seconds_ > 0 ? counted_samples_ / counted_seconds_ : 0;
}

}  // namespace

void train_rank(Run& run, Communicator& communicator) {
  const ThreadCount threads(*run.work.recipe.parallel.threads_per_rank);
  with_plain_errors([&] { RankLoop(run, communicator).run(); });
}

}  // namespace troika::internal
