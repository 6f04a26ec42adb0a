#include "troika/parallel/replica.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <limits>
#include <map>

#include "troika/base/error.h"
#include "troika/comm/mesh_communicators.h"
#include "troika/parallel/executor.h"
#include "troika/parallel/named_gather.h"
#include "troika/parallel/tied_stages.h"
#include "troika/parallel/trained_stage.h"
#include "troika/schedule/catalogue.h"
#include "troika/schedule/passes.h"
#include "troika/schedule/validate.h"

namespace troika {
namespace {

Mesh whole_mesh(const ReplicaOptions& options, int ranks) {
  Mesh mesh = options.mesh;
  if (mesh.data == 0) mesh.data = ranks / (mesh.pipeline * mesh.tensor);
  require_ranks(mesh, ranks);
  if (mesh.tensor != 1) fail_usage("mesh {}: tensor parallelism is not in this version", to_string(mesh));
  return mesh;
}

// With clipping no weight is written before the norm over all stages is known.
Schedule runnable(const Schedule& passes, bool clips) {
  const Schedule schedule = whole_step(passes);
  return clips ? with_updates_last(schedule) : schedule;
}

// Data parallelism alone: each micro-batch's forward and backward in turn.
Schedule one_lane(int micro_batches) {
  return make_schedule("1f1b", {.lanes = 1, .micro_batches = micro_batches});
}

}  // namespace

struct Replica::State {
  State(Communicator& c, const std::vector<Layer>& layers, const ReplicaOptions& o);

  Communicator& communicator;
  ReplicaOptions options;
  Mesh mesh;
  int lane;
  std::optional<MeshCommunicators> axes;  // absent on one lane: all ranks are data ranks
  std::unique_ptr<TensorLink> link;
  Wiring wiring;
  std::map<int, std::unique_ptr<TrainedStage>> stages;  // of this lane, by number
  Schedule schedule;                                    // for as many micro-batches as there were last
  Schedule forwards;                                    // of an evaluation in several stages
  std::optional<TiedStages> ties;                       // across stages
  std::vector<NamedTensor> parameters, others;          // of all stages of this lane
  // Of all stages of the model: tensors, and numbers in them.
  std::vector<int64_t> parameters_of_stage, weights_of_stage;
  int64_t steps = 0;

  Communicator& data() { return axes ? *axes->data : communicator; }
  Communicator& lanes() { return *axes->pipeline; }
  bool is_pipelined() const { return mesh.pipeline > 1; }

  void use_schedule_for(size_t pieces);
  void count_parameters();
  LaneWork lane_work();
  std::string from_lane_of(int64_t stage, const std::string& text);
  void discard();
  [[noreturn]] void fail_for_loss(int bad_rank);
  double scale_of_clipping(double& grad_norm);
  [[noreturn]] void fail_for_gradient(int64_t parameter);
  Tensors evaluate_in_stages(const Tensors& inputs);
  const Totals& totals() const { return stages.begin()->second->totals(); }
};

Replica::State::State(Communicator& c, const std::vector<Layer>& layers, const ReplicaOptions& o)
    : communicator(c), options(o), mesh(whole_mesh(o, c.size())), lane(mesh.coordinate(c.rank()).pipeline) {
  if (!(options.clip_norm >= 0)) {
    fail_usage("clip_norm is {}; it must be a number above 0, or 0 for no clipping", options.clip_norm);
  }
  std::vector<int64_t> starts = {0};
  if (options.pipeline) {
    schedule = options.pipeline->schedule;
    starts = options.pipeline->starts;
    require_valid(schedule, "the schedule");
  } else if (is_pipelined()) {
    fail_usage("mesh {} has {} lanes but there is no schedule for them", to_string(mesh), mesh.pipeline);
  } else {
    schedule = one_lane(1);
  }
  if (schedule.num_lanes() != mesh.pipeline || schedule.num_stages() != static_cast<int>(starts.size())) {
    fail_usage("a schedule of {} lanes and {} stages doesn't fit mesh {} and a model cut into {}",
               schedule.num_lanes(), schedule.num_stages(), to_string(mesh), starts.size());
  }
  if (schedule.num_updates != 1 ||
      !std::ranges::all_of(schedule.max_versions, [](int v) { return v == 1; })) {
    fail_usage(
        "asynchronous schedules are not in this version: take one whose updates come at the end of a step");
  }
  wiring = wire(layers, starts);
  schedule.edges = wiring.edges;
  forwards = with_messages(forward_only(schedule));
  schedule = runnable(schedule, options.clip_norm > 0);
  if (is_pipelined()) {
    axes.emplace(split(communicator, mesh));
    link = std::make_unique<TensorLink>(lanes());
  }
  for (const StageWiring& stage : wiring.stages) {
    if (schedule.lane_of(stage.stage) != lane) continue;
    const MeterScope memory(options.meter_of ? options.meter_of(stage.stage) : nullptr);
    auto trained =
        std::make_unique<TrainedStage>(data(), layers_of(layers, stage), stage, options, c.size(),
                                       schedule.is_recomputed(stage.stage), has_ties(wiring, stage));
    parameters.insert(parameters.end(), trained->parameters().begin(), trained->parameters().end());
    others.insert(others.end(), trained->model().others().begin(), trained->model().others().end());
    stages.emplace(stage.stage, std::move(trained));
  }
  count_parameters();
  std::map<int, const Model*> models;
  for (auto& [number, stage] : stages) models[number] = &stage->model();
  ties.emplace(layers, wiring, models, schedule.lane_of_stage, link.get());
  if (ties->any()) schedule = ties->with_ties_last(schedule);
  ties->publish(0);
  // Factories draw from the generator that the first forwards are watched for.
  if (communicator.size() > 1) communicator.barrier();
}

void Replica::State::count_parameters() {
  parameters_of_stage.assign(wiring.stages.size(), 0);
  weights_of_stage = parameters_of_stage;
  for (const auto& [number, stage] : stages) {
    for (const NamedTensor& p : stage->parameters()) {
      parameters_of_stage[static_cast<size_t>(number)] += 1;
      weights_of_stage[static_cast<size_t>(number)] += p.tensor.numel();
    }
  }
  if (is_pipelined()) {
    const auto count = static_cast<int64_t>(wiring.stages.size());
    lanes().all_reduce_sum({parameters_of_stage.data(), count, ElementType::int64});
    lanes().all_reduce_sum({weights_of_stage.data(), count, ElementType::int64});
  }
  if (std::ranges::all_of(parameters_of_stage, [](int64_t count) { return count == 0; })) {
    fail_usage("the model has no parameter that requires grad: there is nothing to train");
  }
}

void Replica::State::use_schedule_for(size_t pieces) {
  const auto count = static_cast<int>(pieces);
  if (schedule.num_micro_batches == count) return;
  if (options.pipeline) {
    fail_usage("a step of {} pieces, but the schedule is for {} micro-batches", count,
               schedule.num_micro_batches);
  }
  schedule = runnable(one_lane(count), options.clip_norm > 0);
}

// What the lane of `stage` says; on every rank.
std::string Replica::State::from_lane_of(int64_t stage, const std::string& text) {
  if (!is_pipelined()) return text;
  return gather_texts(lanes(), text)[static_cast<size_t>(schedule.lane_of(static_cast<int>(stage)))];
}

void Replica::State::discard() {
  for (auto& [number, stage] : stages) stage->discard();
}

// Each lane of the first bad rank looks for the place and tells the others, so that all say the same.
void Replica::State::fail_for_loss(int bad_rank) {
  constexpr int64_t kNowhere = std::numeric_limits<int64_t>::max();
  struct Found {
    int64_t stage = kNowhere, where = 0, index = 0, micro_batch = 0;
    Elements elements() { return {this, sizeof(Found) / sizeof(int64_t), ElementType::int64}; }
  } found;
  if (data().rank() == bad_rank) {
    for (const auto& [number, stage] : stages) {
      const int micro_batch = stage->stage().bad_micro_batch().value_or(0);
      const NonFinite bad = stage->stage().find_bad_number(micro_batch);
      if (bad.where == NonFinite::Where::loss && !stage->stage().is_last()) continue;
      found = {number, static_cast<int64_t>(bad.where), bad.index, micro_batch};
      break;
    }
  }
  if (data().size() > 1) data().broadcast(found.elements(), bad_rank);
  std::string place;
  if (found.stage != kNowhere) {
    const Model& model = stages.at(static_cast<int>(found.stage))->model();
    place = describe({static_cast<NonFinite::Where>(found.where), found.index}, model);
  }
  // The first stage that has found something knows best; the later ones see what came of it.
  std::vector<Found> of_lanes = {found};
  if (is_pipelined()) {
    of_lanes.resize(static_cast<size_t>(mesh.pipeline));
    Elements all = of_lanes.front().elements();
    all.count *= mesh.pipeline;
    lanes().all_gather(found.elements(), all);
  }
  const Found first = std::ranges::min(of_lanes, {}, &Found::stage);
  place = from_lane_of(first.stage, place);
  discard();
  fail(
      "step {}: the loss is not finite (rank {}, micro-batch {}); the first number that isn't is in {}. No "
      "weight was changed. Try a smaller learning rate, or look for such values in the data",
      steps + 1, bad_rank, first.micro_batch, place);
}

void Replica::State::fail_for_gradient(int64_t parameter) {
  int64_t before = 0;
  size_t owner = 0;
  while (parameter - before >= parameters_of_stage[owner]) before += parameters_of_stage[owner++];
  std::string name;
  if (const auto mine = stages.find(static_cast<int>(owner)); mine != stages.end()) {
    name = mine->second->parameters()[static_cast<size_t>(parameter - before)].name;
  }
  name = from_lane_of(static_cast<int64_t>(owner), name);
  discard();
  fail(
      "step {}: the loss is finite but the gradient of parameter \"{}\" is not. No weight was changed. "
      "Try a smaller learning rate, or look for very large values in the data",
      steps + 1, name);
}

// Before any weight is written, so that a gradient that isn't finite changes none. Parameters count in model
// order, whichever lane has them.
double Replica::State::scale_of_clipping(double& grad_norm) {
  communicator.say("norm of the gradient", steps + 1);
  std::vector<double> squares;
  for (size_t number = 0; number < parameters_of_stage.size(); ++number) {
    const auto mine = stages.find(static_cast<int>(number));
    const std::vector<double> own =
        mine == stages.end() ? std::vector<double>(static_cast<size_t>(parameters_of_stage[number]))
                             : mine->second->squares();
    squares.insert(squares.end(), own.begin(), own.end());
  }
  if (is_pipelined()) {
    lanes().all_reduce_sum({squares.data(), static_cast<int64_t>(squares.size()), ElementType::float64});
  }
  const GradientNorm found = norm_of(squares);
  if (found.first_bad >= 0) fail_for_gradient(found.first_bad);
  grad_norm = found.norm;
  return clip_scale(found.norm, options.clip_norm);
}

Replica::Replica(Communicator& communicator, const std::vector<Layer>& layers, const ReplicaOptions& options)
    : state_(std::make_unique<State>(communicator, layers, options)) {}

Replica::~Replica() = default;

LaneWork Replica::State::lane_work() {
  LaneWork work;
  work.stages.resize(wiring.stages.size());
  for (auto& [number, stage] : stages) work.stages[static_cast<size_t>(number)] = &stage->stage();
  work.link = link.get();
  work.meter_of = options.meter_of;
  work.begins = [this](const Action& action) { communicator.say(name_of(action.op), steps + 1); };
  return work;
}

StepResult Replica::step(std::span<const Batch> pieces, const Loss& loss, const StepProbe& probe) {
  State& s = *state_;
  s.use_schedule_for(pieces.size());
  for (auto& [number, stage] : s.stages) stage->begin_step(s.steps + 1, pieces, loss);
  StepResult result;
  std::optional<double> scale;
  bool finite = true;
  std::map<int, std::vector<at::Tensor>> means;
  LaneWork work = s.lane_work();
  work.reduce_gradients = [&](int stage) {
    s.stages.at(stage)->model().add_tied_gradients();
    s.ties->exchange_gradients(stage, s.steps + 1);
    s.stages.at(stage)->reduce(probe.mean_gradients != nullptr);
  };
  work.optimizer_step = [&](int stage) {
    TrainedStage& mine = *s.stages.at(stage);
    if (mine.totals().first_bad_rank >= 0 || mine.totals().weight == 0) return;
    if (!scale) scale = s.options.clip_norm > 0 ? s.scale_of_clipping(result.grad_norm) : 1;
    finite &= mine.update(*scale, probe.mean_gradients != nullptr ? &means[stage] : nullptr);
  };
  execute(s.schedule, s.lane, s.steps + 1, work, {probe.spans, s.communicator.rank(), probe.spans_from});

  const Totals& totals = s.totals();
  if (totals.first_bad_rank >= 0) s.fail_for_loss(totals.first_bad_rank);
  if (totals.weight == 0) {
    s.discard();
    for (auto& [number, stage] : s.stages) {
      for (const NamedTensor& p : stage->parameters()) means[number].push_back(at::zeros_like(p.tensor));
    }
  } else {
    ++s.steps;
    if (!finite) {
      const std::string name = first_non_finite_parameter(s.parameters);
      fail(
          "step {}: the loss is finite but the gradient of {} is not; the weights have been updated with it. "
          "Go on from a checkpoint before this step, with a smaller learning rate",
          s.steps, name.empty() ? "some parameter" : fmt::format("parameter \"{}\"", name));
    }
    s.ties->publish(s.steps);
    result.loss = totals.loss_sum / totals.weight;
    result.weight = totals.weight;
    for (auto& [number, stage] : s.stages) stage->apply_statistics();
  }
  for (auto& [number, stage] : s.stages) result.waited_seconds += stage->take_waited();
  if (probe.mean_gradients != nullptr) {
    probe.mean_gradients->clear();
    for (auto& [number, mean] : means) std::ranges::move(mean, std::back_inserter(*probe.mean_gradients));
  }
  return result;
}

void Replica::set_learning_rate(double learning_rate) {
  for (auto& [number, stage] : state_->stages) stage->set_learning_rate(learning_rate);
}

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

const std::vector<NamedTensor>& Replica::parameters() const { return state_->parameters; }
const std::vector<NamedTensor>& Replica::others() const { return state_->others; }
Communicator& Replica::data_ranks() { return state_->data(); }
const std::vector<int64_t>& Replica::weights_of_stages() const { return state_->weights_of_stage; }
int64_t Replica::steps_done() const { return state_->steps; }

std::vector<NamedTensor> Replica::state() const {
  State& s = *state_;
  std::vector<NamedTensor> mine;
  for (auto& [number, stage] : s.stages)
    std::ranges::move(copy_state(stage->state_parts()), std::back_inserter(mine));
  if (!s.is_pipelined()) return mine;
  return gather_named(s.lanes(), *s.link, s.steps, std::move(mine));
}

void Replica::load_state(const std::vector<NamedTensor>& given, int64_t steps_done) {
  State& s = *state_;
  std::vector<NamedTensor> expected;
  for (auto& [number, stage] : s.stages)
    std::ranges::move(all_parts(stage->state_parts()), std::back_inserter(expected));
  check_state(expected, s.is_pipelined() ? gather_names(s.lanes(), expected) : names_of(expected), given);
  for (auto& [number, stage] : s.stages) stage->load(given);
  s.steps = steps_done;
  s.ties->publish(steps_done);
}

}  // namespace troika
