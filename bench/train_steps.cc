#include "train_steps.h"

#include <ATen/ops/_fused_sgd.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <memory>

#include "stats.h"
#include "troika/base/clock.h"
#include "troika/base/cpu.h"
#include "troika/base/split.h"
#include "troika/comm/rank_group.h"
#include "troika/parallel/replica.h"
#include "troika/train/models/registry.h"

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

struct Layout {
  int ranks = 1, threads = 1;
  WeightPlacement weights = WeightPlacement::shared;
};

double engine(const Case& c, const Layout& layout, int steps) {
  ReplicaOptions options;
  options.weights = layout.weights;
  options.optimizer.kind = Optimizer::Kind::sgd;
  options.optimizer.learning_rate = kLearningRate;
  const Loss loss = [](const Tensors& outputs, const Batch& batch) {
    return LossValue{torch::mse_loss(outputs[0], batch.target, at::Reduction::Sum),
                     static_cast<double>(batch.samples)};
  };
  const Data data = make_data(c);
  std::vector<double> seconds(static_cast<size_t>(layout.ranks));
  place_thread(layout.ranks == 1 ? layout.threads : 1);
  GroupOptions group;
  group.pin = layout.ranks > 1;  // one rank stays where it was put above
  run_thread_ranks(layout.ranks, group, [&](Communicator& communicator) {
    at::set_num_threads(layout.threads);
    Replica replica(communicator, layers_of(c), options);
    const Range mine = share({0, c.batch}, layout.ranks, communicator.rank());
    const Data own = data.part(mine);
    const Batch batch{own.inputs, own.target, mine.size(), mine.begin};
    seconds[static_cast<size_t>(communicator.rank())] = timed(steps, [&] {
      replica.step({&batch, 1}, loss);
    });
  });
  return *std::max_element(seconds.begin(), seconds.end());
}

/// As `--ranks auto`: a few blocks of each layout in turn, then always the fastest.
class Automatic {
 public:
  Automatic(Case of, int ranks) : case_(std::move(of)), layouts_{{1, 1}, {1, ranks}, {ranks, 1}} {}

  double operator()(int steps) {
    if (!chosen_) chosen_ = choose();
    return engine(case_, *chosen_, steps);
  }

 private:
  Layout choose() const {
    constexpr int kRounds = 5;
    constexpr double kBlockSeconds = 0.1;
    std::vector<std::vector<double>> seconds(layouts_.size());
    std::vector<int> steps;
    for (const Layout& layout : layouts_) {
      steps.push_back(std::max(2, static_cast<int>(kBlockSeconds / engine(case_, layout, 2))));
    }
    for (int round = 0; round < kRounds; ++round) {
      for (size_t i = 0; i < layouts_.size(); ++i) seconds[i].push_back(engine(case_, layouts_[i], steps[i]));
    }
    size_t best = 0;
    for (size_t i = 1; i < layouts_.size(); ++i) {
      if (spread_of(seconds[i]).median < spread_of(seconds[best]).median) best = i;
    }
    return layouts_[best];
  }

  Case case_;
  std::vector<Layout> layouts_;
  std::optional<Layout> chosen_;
};

}  // namespace

std::string Case::name() const { return fmt::format("{} {}x{} batch {}", model, width, layers, batch); }

std::vector<Case> all_cases() {
  return {{"mlp", 64, 4, 32},  {"mlp", 256, 4, 64},  {"mlp", 1024, 4, 64},       {"mlp", 1024, 8, 16},
          {"lstm", 64, 1, 64}, {"lstm", 128, 2, 64}, {"transformer", 64, 2, 32}, {"transformer", 256, 4, 16}};
}

Ways ways_of(const Case& c, int ranks) {
  Case part = c;
  part.batch = c.batch / ranks;
  Ways ways;
  const auto add = [&](std::string name, const Case& of, std::function<double(int)> block) {
    ways.all.push_back({std::move(name), of.batch, std::move(block)});
  };
  const auto engine_with = [](const Case& of, const Layout& layout) {
    return [=](int steps) { return engine(of, layout, steps); };
  };
  add("plain, 1 thread", c, [=](int steps) { return plain_flat(c, 1, steps); });
  add("plain, tensor list", c, [=](int steps) { return plain_list(c, 1, steps); });
  add(fmt::format("plain, {} threads", ranks), c, [=](int steps) { return plain_flat(c, ranks, steps); });
  add("troika, 1 rank", c, engine_with(c, {1, 1}));
  add(fmt::format("troika, {} ranks shared", ranks), c, engine_with(c, {ranks, 1}));
  add(fmt::format("troika, {} ranks replicated", ranks), c,
      engine_with(c, {ranks, 1, WeightPlacement::replicated}));
  add("troika, auto", c, Automatic(c, ranks));
  add(fmt::format("plain, 1 thread, batch/{}", ranks), part,
      [=](int steps) { return plain_flat(part, 1, steps); });
  return ways;
}

}  // namespace troika::bench
