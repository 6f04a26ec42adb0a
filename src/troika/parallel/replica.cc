#include "troika/parallel/replica.h"

#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <map>

#include "troika/base/error.h"
#include "troika/parallel/named_gather.h"
#include "troika/parallel/replica_parts.h"
#include "troika/parallel/tensor/slices.h"
#include "troika/schedule/catalogue.h"
#include "troika/schedule/passes.h"
#include "troika/schedule/validate.h"

namespace troika {
namespace {

Mesh whole_mesh(const ReplicaOptions& options, int ranks) {
  Mesh mesh = options.mesh;
  if (mesh.data == 0) mesh.data = ranks / (mesh.pipeline * mesh.tensor);
  require_ranks(mesh, ranks);
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
  const bool is_one_step =
      schedule.num_updates == 1 && std::ranges::all_of(schedule.max_versions, [](int v) { return v == 1; });
  if (!is_asynchronous() && !is_one_step) {
    fail_usage(
        "the schedule updates weights within its window, so it needs PipelineOptions::window and run_window");
  }
  wiring = wire(layers, starts);
  if (is_asynchronous()) {
    refuse_asynchronous(layers);
  } else if (options.clip_by_stage) {
    fail_usage("clip_by = \"stage\" is for asynchronous schedules: what it does depends on the cuts");
  }
  schedule.edges = wiring.edges;
  forwards = with_messages(forward_only(schedule));
  schedule = runnable(schedule, options.clip_norm > 0 && !is_asynchronous());
  split_mesh(layers);
  build_stages(layers);
  count_parameters();
  std::map<int, const Model*> models;
  for (auto& [number, stage] : stages) models[number] = &stage->model();
  ties.emplace(layers, wiring, models, schedule.lane_of_stage, link.get());
  if (ties->any()) schedule = ties->with_ties_last(schedule);
  ties->publish(0);
  // Factories draw from the generator that the first forwards are watched for.
  if (communicator.size() > 1) communicator.barrier();
}

void Replica::State::split_mesh(const std::vector<Layer>& layers) {
  if (mesh.pipeline == 1 && mesh.tensor == 1) return;
  axes.emplace(split(communicator, mesh));
  if (is_pipelined()) link = std::make_unique<TensorLink>(lanes());
  if (mesh.tensor == 1) return;
  tensor.emplace(*axes->tensor);
  tensor_plan = options.tensor_plan;
  if (!tensor_plan) tensor_plan = std::make_shared<TensorPlan>(plan_tensor(layers, mesh.tensor));
  if (tensor_plan->ranks != mesh.tensor || tensor_plan->layers.size() != layers.size()) {
    fail_usage("a plan for {} tensor ranks and {} layers doesn't fit mesh {} and a model of {}",
               tensor_plan->ranks, tensor_plan->layers.size(), to_string(mesh), layers.size());
  }
}

void Replica::State::build_stages(const std::vector<Layer>& layers) {
  for (const StageWiring& stage : wiring.stages) {
    if (schedule.lane_of(stage.stage) != lane) continue;
    const MeterScope memory(options.meter_of ? options.meter_of(stage.stage) : nullptr);
    const std::vector<Layer> of_stage = layers_of(layers, stage);
    TrainedStageParts parts{of_stage, stage, options};
    parts.ranks = communicator.size();
    parts.recomputed = schedule.is_recomputed(stage.stage);
    parts.has_ties = has_ties(wiring, stage);
    if (is_asynchronous()) parts.versions = kept_versions(stage.stage);
    if (tensor) parts.slices = {&*tensor, tensor_plan.get(), static_cast<size_t>(stage.layers.begin)};
    stages.emplace(stage.stage, std::make_unique<TrainedStage>(data(), parts));
  }
  list_tensors();
}

void Replica::State::list_tensors() {
  parameters.clear();
  others.clear();
  cuts.clear();
  for (const auto& [number, stage] : stages) {
    std::ranges::copy(stage->parameters(), std::back_inserter(parameters));
    std::ranges::copy(stage->model().others(), std::back_inserter(others));
    cuts.insert(stage->model().cuts().begin(), stage->model().cuts().end());
  }
}

void Replica::State::count_parameters() {
  parameters_of_stage.assign(wiring.stages.size(), 0);
  weights_of_stage = parameters_of_stage;
  for (const auto& [number, stage] : stages) {
    for (const NamedTensor& p : stage->parameters()) {
      parameters_of_stage[static_cast<size_t>(number)] += 1;
      weights_of_stage[static_cast<size_t>(number)] +=
          cuts.contains(p.name) ? c10::multiply_integers(whole_sizes(p.tensor, cuts.at(p.name)))
                                : p.tensor.numel();
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

// Before any weight is written, so that a gradient that isn't finite changes none. Parameters count in model
// order, whichever lane has them.
double Replica::State::scale_of_clipping(double& grad_norm) {
  communicator.say("norm of the gradient", steps + 1);
  std::vector<double> squares;
  for (size_t number = 0; number < parameters_of_stage.size(); ++number) {
    const auto mine = stages.find(static_cast<int>(number));
    std::vector<double> own = mine == stages.end()
                                  ? std::vector<double>(static_cast<size_t>(parameters_of_stage[number]))
                                  : mine->second->squares();
    if (tensor && mine != stages.end()) add_squares_of_slices(cuts, *tensor, mine->second->parameters(), own);
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
  if (s.is_asynchronous()) fail_usage("an asynchronous schedule goes through windows of steps: run_window");
  s.use_schedule_for(pieces.size());
  for (auto& [number, stage] : s.stages) stage->begin_steps({s.steps + 1, {}, {}}, pieces, loss);
  StepResult result;
  std::optional<double> scale;
  bool finite = true;
  std::map<int, std::vector<at::Tensor>> means;
  LaneWork work = s.lane_work();
  work.reduce_gradients = [&](int stage, int) {
    s.stages.at(stage)->model().add_tied_gradients();
    s.ties->exchange_gradients(stage, s.steps + 1);
    s.stages.at(stage)->reduce(probe.mean_gradients != nullptr);
  };
  work.optimizer_step = [&](int stage, int) {
    TrainedStage& mine = *s.stages.at(stage);
    if (mine.totals().first_bad_rank >= 0 || mine.totals().weight == 0) return;
    if (!scale) scale = s.options.clip_norm > 0 ? s.scale_of_clipping(result.grad_norm) : 1;
    finite &= mine.update(*scale, probe.mean_gradients != nullptr ? &means[stage] : nullptr);
  };
  execute(s.schedule, s.lane, s.steps + 1, work, {probe.spans, s.communicator.rank(), probe.spans_from});

  const Totals& totals = s.totals();
  if (totals.first_bad_rank >= 0) {
    s.fail_for_loss(totals.first_bad_rank, s.steps + 1, "No weight was changed");
  }
  if (totals.weight == 0) {
    s.discard();
    for (auto& [number, stage] : s.stages) {
      for (const NamedTensor& p : stage->parameters()) means[number].push_back(at::zeros_like(p.tensor));
    }
  } else {
    ++s.steps;
    if (!finite) s.fail_for_updated_gradient(s.parameters, s.steps);
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

const std::vector<NamedTensor>& Replica::parameters() const { return state_->parameters; }
const std::vector<NamedTensor>& Replica::others() const { return state_->others; }
Communicator& Replica::data_ranks() { return state_->data(); }
const std::vector<int64_t>& Replica::weights_of_stages() const { return state_->weights_of_stage; }

std::vector<NamedTensor> Replica::in_whole(const std::vector<NamedTensor>& tensors) {
  return state_->tensor ? troika::in_whole(state_->cuts, *state_->tensor, tensors, true) : tensors;
}

int64_t Replica::tensor_payload_bytes() const { return state_->tensor ? state_->tensor->payload_bytes() : 0; }

int64_t Replica::steps_done() const { return state_->steps; }

std::vector<NamedTensor> Replica::state() const {
  State& s = *state_;
  std::vector<NamedTensor> mine;
  for (auto& [number, stage] : s.stages) {
    std::vector<NamedTensor> parts = copy_state(stage->state_parts());
    if (s.tensor) parts = state_in_whole(s.cuts, *s.tensor, std::move(parts), s.tensor->rank() == 0);
    std::ranges::move(parts, std::back_inserter(mine));
  }
  if (!s.is_pipelined()) return mine;
  return gather_named(s.lanes(), *s.link, s.steps, std::move(mine));
}

void Replica::load_state(const std::vector<NamedTensor>& given, int64_t steps_done) {
  State& s = *state_;
  std::vector<NamedTensor> expected;
  for (auto& [number, stage] : s.stages) {
    std::ranges::move(sizes_in_whole(s.cuts, all_parts(stage->state_parts())), std::back_inserter(expected));
  }
  check_state(expected, s.is_pipelined() ? gather_names(s.lanes(), expected) : names_of(expected), given);
  for (auto& [number, stage] : s.stages)
    stage->load(s.tensor ? state_in_slices(s.cuts, *s.tensor, given) : given);
  s.steps = steps_done;
  s.ties->publish(steps_done);
}

}  // namespace troika
