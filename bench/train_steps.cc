#include "train_steps.h"

#include <ATen/ops/_fused_sgd.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "stats.h"
#include "troika/base/clock.h"
#include "troika/base/cpu.h"
#include "troika/base/progress.h"
#include "troika/base/split.h"
#include "troika/comm/rank_group.h"
#include "troika/parallel/memory_meter.h"
#include "troika/parallel/replica.h"
#include "troika/schedule/catalogue.h"
#include "troika/schedule/partition.h"
#include "troika/train/models/registry.h"
#include "troika/train/trial.h"

namespace troika::bench {
namespace {

constexpr int64_t kInputs = 40, kWindow = 64;
constexpr double kLearningRate = 1e-3;
constexpr int kWarmUpSteps = 3;

std::vector<Layer> layers_of(const Case& c) {
  ModelRecipe recipe;
  recipe.type = c.model;
  recipe.width = c.width;
  recipe.layers = c.layers;
  ModelShape shape;
  shape.floats = kInputs;
  shape.window = c.model == "mlp" ? 0 : kWindow;
  return make_model(recipe, shape);
}

struct Data {
  Tensors inputs;
  at::Tensor target;

  Data part(Range rows) const {
    Data out;
    for (const at::Tensor& input : inputs)
      out.inputs.push_back(input.narrow(0, rows.begin, rows.size()).clone());
    out.target = target.narrow(0, rows.begin, rows.size()).clone();
    return out;
  }
};

Data make_data(const Case& c) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(1);
  const std::vector<int64_t> rows =
      c.model == "mlp" ? std::vector<int64_t>{c.batch} : std::vector<int64_t>{c.batch, kWindow};
  const auto with = [&](int64_t last) {
    std::vector<int64_t> sizes = rows;
    sizes.push_back(last);
    return sizes;
  };
  return {{torch::randn(with(kInputs), generator), torch::empty(with(0), torch::kLong)},
          torch::randn({c.batch, 1}, generator)};
}

double timed(int steps, const std::function<void()>& step) {
  for (int i = 0; i < kWarmUpSteps; ++i) step();
  const auto start = Clock::now();
  for (int i = 0; i < steps; ++i) step();
  return seconds_since(start) / steps;
}

void place_thread(int threads) {
  unpin();
  if (threads == 1) pin_to_cores_of_rank(0, usable_cores());
  at::set_num_threads(threads);
}

/// The loop that one writes by hand, one fused SGD over one flat tensor. Like Troika it reads the loss every
/// step.
double plain_flat(const Case& c, int threads, int steps) {
  place_thread(threads);
  const Model model(layers_of(c), 1);
  const Data data = make_data(c);
  int64_t size = 0;
  for (const NamedTensor& p : model.parameters()) size += (p.tensor.numel() + 15) / 16 * 16;
  std::vector<at::Tensor> weights{torch::zeros({size})}, gradients{torch::zeros({size})};
  int64_t offset = 0;
  for (const NamedTensor& named : model.parameters()) {
    at::Tensor p = named.tensor;
    const at::Tensor place = weights[0].narrow(0, offset, p.numel()).view(p.sizes());
    place.copy_(p.detach());
    p.set_data(place);
    p.mutable_grad() = gradients[0].narrow(0, offset, p.numel()).view(p.sizes());
    offset += (p.numel() + 15) / 16 * 16;
  }
  double loss_read = 0;
  return timed(steps, [&] {
    gradients[0].zero_();
    const at::Tensor loss = torch::mse_loss(model.forward(data.inputs)[0], data.target);
    loss.backward();
    loss_read += loss.item<double>();
    const torch::NoGradGuard no_grad;
    at::_fused_sgd_(weights, gradients, {}, 0, 0, kLearningRate, 0, false, false, true, {}, {});
  });
}

/// The same with one tensor per parameter and gradients made anew each step, as zero_grad() leaves them.
double plain_list(const Case& c, int threads, int steps) {
  place_thread(threads);
  const Model model(layers_of(c), 1);
  const Data data = make_data(c);
  double loss_read = 0;
  return timed(steps, [&] {
    for (const NamedTensor& p : model.parameters()) p.tensor.mutable_grad() = at::Tensor();
    const at::Tensor loss = torch::mse_loss(model.forward(data.inputs)[0], data.target);
    loss.backward();
    loss_read += loss.item<double>();
    const torch::NoGradGuard no_grad;
    std::vector<at::Tensor> weights, gradients;
    for (const NamedTensor& p : model.parameters()) {
      weights.push_back(p.tensor.detach());
      gradients.push_back(p.tensor.grad());
    }
    at::_fused_sgd_(weights, gradients, {}, 0, 0, kLearningRate, 0, false, false, true, {}, {});
  });
}

/// How the engine does it.
struct Setting {
  Mesh mesh = {};
  int threads = 1;  // of a rank
  int micro_batches = 1;
  std::string schedule = {};  // of several lanes
  WeightPlacement weights = WeightPlacement::shared;
  bool metered = false;  // each stage's memory is counted, as in a training run
};

/// The first layer of each stage, so that the largest has as few parameters as possible.
std::vector<int64_t> cut_by_parameters(const std::vector<Layer>& layers, int stages) {
  std::vector<LayerCost> costs;
  for (const Layer& layer : layers) {
    const Model model({layer}, 1);
    LayerCost& cost = costs.emplace_back(LayerCost{layer.name});
    for (const NamedTensor& p : model.parameters()) cost.work += static_cast<double>(p.tensor.numel());
  }
  return partition(costs, {.stages = stages}).starts;
}

ReplicaOptions options_of(const Case& c, const Setting& setting) {
  ReplicaOptions options;
  options.mesh = setting.mesh;
  options.weights = setting.weights;
  options.optimizer.kind = Optimizer::Kind::sgd;
  options.optimizer.learning_rate = kLearningRate;
  if (setting.mesh.pipeline > 1) {
    options.pipeline.emplace();
    options.pipeline->schedule = make_schedule(
        setting.schedule, {.lanes = setting.mesh.pipeline, .micro_batches = setting.micro_batches});
    options.pipeline->starts = cut_by_parameters(layers_of(c), options.pipeline->schedule.num_stages());
  }
  return options;
}

double engine(const Case& c, const Setting& setting, int steps) {
  const ReplicaOptions options = options_of(c, setting);
  const Loss loss = [](const Tensors& outputs, const Batch& batch) {
    return LossValue{torch::mse_loss(outputs[0], batch.target, at::Reduction::Sum),
                     static_cast<double>(batch.samples)};
  };
  const Data data = make_data(c);
  const int ranks = setting.mesh.ranks();
  std::vector<double> seconds(static_cast<size_t>(ranks));
  place_thread(ranks == 1 ? setting.threads : 1);
  GroupOptions group;
  group.pin = ranks > 1;  // one rank stays where it was put above
  run_thread_ranks(ranks, group, [&](Communicator& communicator) {
    at::set_num_threads(setting.threads);
    std::vector<MemoryMeter> meters(setting.metered ? options.pipeline->starts.size() : 0);
    ReplicaOptions own = options;
    if (setting.metered) own.meter_of = [&](int stage) { return &meters[static_cast<size_t>(stage)]; };
    Replica replica(communicator, layers_of(c), own);
    std::vector<Batch> pieces;
    for (int i = 0; i < setting.micro_batches; ++i) {
      const Range micro_batch = share({0, c.batch}, setting.micro_batches, i);
      const int64_t data_rank = setting.mesh.coordinate(communicator.rank()).data;
      const Range mine = share(micro_batch, setting.mesh.data, data_rank);
      const Data own = data.part(mine);
      pieces.push_back({own.inputs, own.target, mine.size(), mine.begin});
    }
    seconds[static_cast<size_t>(communicator.rank())] = timed(steps, [&] { replica.step(pieces, loss); });
  });
  return *std::max_element(seconds.begin(), seconds.end());
}

Setting of_layout(const Layout& layout) {
  return {.mesh = {static_cast<int>(layout.ranks), 1, 1}, .threads = static_cast<int>(layout.threads)};
}

/// As `--ranks auto`: the product's own trial, then always what it chose.
class Automatic {
 public:
  Automatic(Case of, int cores) : case_(std::move(of)), cores_(cores) {}

  double operator()(int steps) {
    if (!chosen_) chosen_ = choose();
    return engine(case_, of_layout(*chosen_), steps);
  }

 private:
  Layout choose() const {
    constexpr int64_t kLongRun = 1'000'000'000;  // steps
    const auto measure = [this](const Layout& layout, double seconds, int64_t most_steps) {
      const double one = engine(case_, of_layout(layout), 2);
      const int64_t steps =
          std::clamp<int64_t>(std::llround(seconds / one), 2, std::max<int64_t>(2, most_steps));
      const double mean = engine(case_, of_layout(layout), static_cast<int>(steps));
      return TrialBlock{steps, static_cast<double>(steps * case_.batch), mean * static_cast<double>(steps)};
    };
    Progress quiet(true);
    const auto fits = [this](int64_t ranks) { return ranks <= case_.batch; };
    return run_trial(candidate_layouts(cores_, 0, fits), kLongRun, {}, measure, quiet).chosen;
  }

  Case case_;
  int cores_;
  std::optional<Layout> chosen_;
};

}  // namespace

std::string Case::name() const { return fmt::format("{} {}x{} batch {}", model, width, layers, batch); }

std::vector<Case> all_cases() {
  return {{"mlp", 64, 4, 32},  {"mlp", 256, 4, 64},  {"mlp", 1024, 4, 64},       {"mlp", 1024, 8, 16},
          {"lstm", 64, 1, 64}, {"lstm", 128, 2, 64}, {"transformer", 64, 2, 32}, {"transformer", 256, 4, 16}};
}

std::vector<Case> pipeline_cases() { return {{"mlp", 512, 8, 256}, {"transformer", 128, 4, 64}}; }

std::vector<Case> tensor_cases() {
  return {{"mlp", 1024, 8, 16},       {"transformer", 256, 4, 1}, {"transformer", 256, 4, 8},
          {"transformer", 512, 4, 1}, {"transformer", 512, 4, 8}, {"transformer", 1024, 2, 1},
          {"transformer", 1024, 2, 8}};
}

std::string one_rank(int threads, int micro_batches) {
  std::string name = fmt::format("1 rank, {} thread{}", threads, threads == 1 ? "" : "s");
  if (micro_batches > 1) name += fmt::format(", {} micro-batches", micro_batches);
  return name;
}

std::vector<Way> pipeline_ways(const Case& c, int lanes) {
  std::vector<Way> ways;
  const auto add = [&](std::string name, const Setting& setting) {
    ways.push_back({std::move(name), c.batch, [=](int steps) { return engine(c, setting, steps); }});
  };
  add(one_rank(lanes), {.threads = lanes});
  add(one_rank(1), {});
  for (const int micro_batches : {8, 32}) add(one_rank(1, micro_batches), {.micro_batches = micro_batches});
  add(fmt::format("{} data ranks", lanes), {.mesh = {lanes, 1, 1}});
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
    for (const int micro_batches : {8, 32}) {
      add(fmt::format("{} lanes, {}, {} micro-batches", lanes, schedule, micro_batches),
          {.mesh = {1, lanes, 1}, .micro_batches = micro_batches, .schedule = schedule});
    }
  }
  return ways;
}

std::vector<Way> tensor_ways(const Case& c, int ranks) {
  std::vector<Way> ways;
  const auto add = [&](std::string name, std::function<double(int)> block) {
    ways.push_back({std::move(name), c.batch, std::move(block)});
  };
  add(fmt::format("plain, {} threads", ranks), [=](int steps) { return plain_list(c, ranks, steps); });
  add("plain, 1 thread", [=](int steps) { return plain_list(c, 1, steps); });
  add(one_rank(1), [=](int steps) { return engine(c, {}, steps); });
  add(fmt::format("{} tensor ranks", ranks), [=](int steps) {
    return engine(c, {.mesh = {1, 1, ranks}}, steps);
  });
  if (c.batch >= ranks)
    add(fmt::format("{} data ranks", ranks), [=](int steps) {
      return engine(c, {.mesh = {ranks, 1, 1}}, steps);
    });
  return ways;
}

std::vector<Way> metered_ways(const Case& c, int lanes) {
  std::vector<Way> ways;
  for (const bool metered : {false, true}) {
    const Setting setting{.mesh = {1, lanes, 1}, .micro_batches = 8, .schedule = "1f1b", .metered = metered};
    ways.push_back(
        {metered ? "with meters" : "without", c.batch, [=](int steps) { return engine(c, setting, steps); }});
  }
  return ways;
}

Ways ways_of(const Case& c, int ranks) {
  Case part = c;
  part.batch = c.batch / ranks;
  Ways ways;
  const auto add = [&](std::string name, const Case& of, std::function<double(int)> block) {
    ways.all.push_back({std::move(name), of.batch, std::move(block)});
  };
  const auto engine_with = [&c](int of_ranks, WeightPlacement weights) {
    return [=, of = c](int steps) {
      return engine(of, {.mesh = {of_ranks, 1, 1}, .weights = weights}, steps);
    };
  };
  add("plain, 1 thread", c, [=](int steps) { return plain_flat(c, 1, steps); });
  add("plain, tensor list", c, [=](int steps) { return plain_list(c, 1, steps); });
  add(fmt::format("plain, {} threads", ranks), c, [=](int steps) { return plain_flat(c, ranks, steps); });
  add("troika, 1 rank", c, engine_with(1, WeightPlacement::shared));
  add(fmt::format("troika, {} ranks shared", ranks), c, engine_with(ranks, WeightPlacement::shared));
  add(fmt::format("troika, {} ranks replicated", ranks), c, engine_with(ranks, WeightPlacement::replicated));
  add("troika, auto", c, Automatic(c, ranks));
  add(fmt::format("plain, 1 thread, batch/{}", ranks), part,
      [=](int steps) { return plain_flat(part, 1, steps); });
  return ways;
}

}  // namespace troika::bench
