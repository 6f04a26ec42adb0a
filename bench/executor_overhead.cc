#include "executor_overhead.h"

#include <ATen/ops/ones.h>
#include <sys/prctl.h>
#include <time.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>

#include <ATen/Parallel.h>
#include <map>

#include "troika/comm/rank_group.h"
#include "troika/parallel/replica.h"
#include "troika/schedule/catalogue.h"
#include "troika/schedule/passes.h"
#include "troika/train/pipeline_trace.h"

namespace troika::bench {
namespace {

constexpr int kWarmUpSteps = 2;

thread_local double slept_s = 0;  // of this rank, with what it woke up late; backward runs on its thread

/// To a point in time, which a late call doesn't move, and without the slack that the kernel gives timers.
void sleep_from_now(double seconds) {
  const Clock::time_point start = Clock::now();
  timespec until{};
  ::clock_gettime(CLOCK_MONOTONIC, &until);
  const int64_t nanoseconds = until.tv_nsec + std::llround(seconds * 1e9);
  until.tv_sec += nanoseconds / 1'000'000'000;
  until.tv_nsec = nanoseconds % 1'000'000'000;
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) continue;
  slept_s += seconds_since(start);
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Forward sleeps, and so does the gradient of the input, if somebody wants it: the first stage's is
/// nobody's.
struct InputPart : torch::autograd::Function<InputPart> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            double seconds) {
    context->saved_data["seconds"] = seconds;
    sleep_from_now(seconds);
    return x + weight;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (context->needs_input_grad(0)) sleep_from_now(context->saved_data["seconds"].toDouble());
    return {gradients[0], gradients[0], {}};
  }
};

/// A node of its own, so that a split backward finds it.
struct WeightPart : torch::autograd::Function<WeightPart> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& weight, double seconds) {
    context->saved_data["seconds"] = seconds;
    return weight.clone();
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    sleep_from_now(context->saved_data["seconds"].toDouble());
    return {gradients[0], {}};
  }
};

struct Sleeper : torch::nn::Module {
  explicit Sleeper(double s) : seconds(s), weight(register_parameter("weight", at::ones({1, 1}))) {}
  at::Tensor forward(const at::Tensor& x) {
    return InputPart::apply(x, WeightPart::apply(weight, seconds), seconds);
  }
  double seconds;
  at::Tensor weight;
};

ReplicaOptions options_of(const OverheadCase& of) {
  ReplicaOptions options;
  options.mesh = {1, of.lanes, 1};
  options.optimizer.kind = Optimizer::Kind::sgd;
  options.pipeline.emplace();
  options.pipeline->schedule =
      make_schedule(of.schedule, {.lanes = of.lanes, .micro_batches = of.micro_batches});
  for (int stage = 0; stage < options.pipeline->schedule.num_stages(); ++stage)
    options.pipeline->starts.push_back(stage);
  return options;
}

struct Step {
  Trace trace;
  double slept_s = 0;  // by all lanes
};

std::vector<Step> run_steps(const OverheadCase& of, const ReplicaOptions& options) {
  std::vector<Layer> layers;
  for (size_t i = 0; i < options.pipeline->starts.size(); ++i)
    layers.push_back(layer<Sleeper>("sleeper" + std::to_string(i), of.pass_s));
  const Loss loss = [](const Tensors& outputs, const Batch&) { return LossValue{outputs[0].sum(), 1}; };
  struct LaneStep {
    std::vector<Span> spans;
    double slept_s = 0;
  };
  std::vector<std::vector<LaneStep>> lane_steps(static_cast<size_t>(of.lanes));  // each rank writes its own
  const Clock::time_point zero = Clock::now();
  // Not pinned: who sleeps needs no core, and whoever else computes may be on it.
  run_thread_ranks(of.lanes, {.pin = false}, [&](Communicator& communicator) {
    ::prctl(PR_SET_TIMERSLACK, 1);
    at::set_num_threads(1);
    Replica replica(communicator, layers, options);
    std::vector<Batch> pieces;
    for (int i = 0; i < of.micro_batches; ++i) pieces.push_back({{at::ones({1, 1})}, at::ones({1, 1}), 1, i});
    for (int step = -kWarmUpSteps; step < of.steps; ++step) {
      LaneStep done;
      slept_s = 0;
      communicator.barrier();
      replica.step(pieces, loss, {.mean_gradients = nullptr, .spans = &done.spans, .spans_from = zero});
      done.slept_s = slept_s;
      if (step >= 0) lane_steps[static_cast<size_t>(communicator.rank())].push_back(std::move(done));
    }
  });
  std::vector<Step> steps;
  for (size_t i = 0; i < static_cast<size_t>(of.steps); ++i) {
    Step& step = steps.emplace_back();
    step.trace.ranks = of.lanes;
    for (const std::vector<LaneStep>& lane : lane_steps) {
      step.trace.spans.insert(step.trace.spans.end(), lane[i].spans.begin(), lane[i].spans.end());
      step.slept_s += lane[i].slept_s;
    }
    step.trace = lanes_of_first_replica(step.trace, options.mesh);
  }
  return steps;
}

std::vector<std::vector<Span>> by_lane(const Trace& trace) {
  std::vector<std::vector<Span>> lanes(static_cast<size_t>(trace.ranks));
  for (const Span& span : trace.spans) lanes[static_cast<size_t>(span.rank)].push_back(span);
  return lanes;
}

bool is_in_order(const Trace& trace, const Schedule& schedule) {
  const std::vector<std::vector<Span>> lanes = by_lane(trace);
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    Lane expected = schedule.lanes[lane], done;
    std::erase_if(expected, [](const Action& action) { return action.op == Op::load; });
    for (const Span& span : lanes[lane]) done.push_back(span.action);
    if (done != expected) return false;
  }
  return true;
}

/// The send that a receive is the other end of.
Action sent(const Action& receive) {
  const Op op = receive.op == Op::receive_gradient ? Op::send_gradient : Op::send_activation;
  return {op, receive.peer, receive.micro_batch, receive.stage};
}

struct Samples {
  std::vector<double> ratios, makespans, simulated, messages, added;
  std::map<std::pair<int, Op>, std::vector<double>> passes;  // by stage
  double own = 0;
  int64_t actions = 0;
};

void look_at(const Step& step, Samples& samples) {
  const Trace& trace = step.trace;
  double in_passes = 0;
  int64_t passes = 0;
  std::map<Action, Span> sends;
  for (const Span& span : trace.spans)
    if (is_send(span.action.op)) sends.emplace(span.action, span);
  for (const std::vector<Span>& lane : by_lane(trace)) {
    double before = lane.empty() ? 0 : lane.front().start_s;
    for (const Span& span : lane) {
      const double seconds = span.end_s - span.start_s;
      const Op op = span.action.op;
      samples.own += span.start_s - before;
      before = span.end_s;
      ++samples.actions;
      if (is_send(op)) {
        samples.own += seconds;
      } else if (is_message(op)) {
        const Span& send = sends.at(sent(span.action));
        samples.own += std::max(0.0, span.end_s - std::max(span.start_s, send.end_s));
        if (span.start_s < send.start_s) samples.messages.push_back(span.end_s - send.start_s);
      } else if (is_pass(op)) {
        samples.passes[{span.action.stage, op}].push_back(seconds);
        in_passes += seconds;
        ++passes;
      }
    }
  }
  samples.added.push_back((in_passes - step.slept_s) / static_cast<double>(passes));
}

double deviation(const std::vector<double>& values) {
  double mean = 0, squares = 0;
  for (const double value : values) mean += value / static_cast<double>(values.size());
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size()));
}

}  // namespace

Overhead overhead_of(const OverheadCase& of) {
  const ReplicaOptions options = options_of(of);
  const Schedule& schedule = options.pipeline->schedule;
  const Schedule whole = whole_step(schedule);
  Overhead result;
  Samples samples;
  for (const Step& step : run_steps(of, options)) {
    const Trace& trace = step.trace;
    result.in_order = result.in_order && is_in_order(trace, whole);
    const double measured = trace.duration_s(), simulated = simulated_from(schedule, trace).duration_s();
    samples.makespans.push_back(measured);
    samples.simulated.push_back(simulated);
    samples.ratios.push_back(measured / simulated);
    look_at(step, samples);
  }
  result.ratio = spread_of(samples.ratios);
  result.makespan_s = spread_of(samples.makespans).median;
  result.simulated_s = spread_of(samples.simulated).median;
  result.actions = static_cast<int>(samples.actions / of.steps);
  result.own_us = 1e6 * samples.own / static_cast<double>(samples.actions);
  result.message_us = 1e6 * spread_of(samples.messages).median;
  result.pass_us = 1e6 * spread_of(samples.added).median;
  for (const auto& [kind, seconds] : samples.passes)
    result.jitter_us += 1e6 * deviation(seconds) / static_cast<double>(samples.passes.size());
  return result;
}

}  // namespace troika::bench
