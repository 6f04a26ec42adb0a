// What data parallelism costs and gains: a plain LibTorch loop, Troika with one rank, and with N ranks that
// share or replicate their weights, on multi-layer perceptrons "WxL" (L hidden layers of width W, 40 inputs,
// one output) at the same global batch. Blocks of steps alternate, A B C A B C; a ratio is taken within a
// round, so that a slow moment of the machine hits both sides.
#include <ATen/ops/_fused_sgd.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "stats.h"
#include "troika/base/clock.h"
#include "troika/base/cpu.h"
#include "troika/base/split.h"
#include "troika/comm/rank_group.h"
#include "troika/parallel/replica.h"

namespace {

using namespace troika;

constexpr int64_t kInputs = 40;
constexpr double kLearningRate = 1e-3;

struct Case {
  int64_t width, layers, batch;
  std::string name() const { return fmt::format("mlp {}x{} batch {}", width, layers, batch); }
};

struct Data {
  at::Tensor inputs, target;
};

Data make_data(int64_t rows) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(1);
  return {torch::randn({rows, kInputs}, generator), torch::randn({rows, 1}, generator)};
}

/// Seconds for a step, the mean over a block of `steps`.
using Block = std::function<double(int steps)>;

constexpr int kWarmUpSteps = 3;

double timed(int steps, const std::function<void()>& step) {
  for (int i = 0; i < kWarmUpSteps; ++i) step();
  const auto start = Clock::now();
  for (int i = 0; i < steps; ++i) step();
  return seconds_since(start) / steps;
}

torch::nn::Sequential plain_model(const Case& c) {
  torch::nn::Sequential net;
  for (int64_t i = 0; i < c.layers; ++i) {
    net->push_back(torch::nn::Linear(i == 0 ? kInputs : c.width, c.width));
    net->push_back(torch::nn::ReLU());
  }
  net->push_back(torch::nn::Linear(c.width, 1));
  return net;
}

/// The loop that one writes by hand, one fused SGD over one flat tensor; the loss is read every step, as
/// Troika does.
double plain_flat(const Case& c, int threads, int steps) {
  unpin();
  if (threads == 1) pin_to_cores_of_rank(0, usable_cores());
  at::set_num_threads(threads);
  torch::nn::Sequential net = plain_model(c);
  const Data data = make_data(c.batch);
  int64_t size = 0;
  for (const auto& p : net->parameters()) size += (p.numel() + 15) / 16 * 16;
  std::vector<at::Tensor> weights{torch::zeros({size})}, gradients{torch::zeros({size})};
  int64_t offset = 0;
  for (auto p : net->parameters()) {
    const at::Tensor place = weights[0].narrow(0, offset, p.numel()).view(p.sizes());
    place.copy_(p.detach());
    p.set_data(place);
    p.mutable_grad() = gradients[0].narrow(0, offset, p.numel()).view(p.sizes());
    offset += (p.numel() + 15) / 16 * 16;
  }
  double loss_read = 0;
  return timed(steps, [&] {
    gradients[0].zero_();
    const at::Tensor loss = torch::mse_loss(net->forward(data.inputs), data.target);
    loss.backward();
    loss_read += loss.item<double>();
    const torch::NoGradGuard no_grad;
    at::_fused_sgd_(weights, gradients, {}, 0, 0, kLearningRate, 0, false, false, true, {}, {});
  });
}

/// The same with one tensor per parameter and gradients made anew each step, as zero_grad() leaves them.
double plain_list(const Case& c, int threads, int steps) {
  unpin();
  if (threads == 1) pin_to_cores_of_rank(0, usable_cores());
  at::set_num_threads(threads);
  torch::nn::Sequential net = plain_model(c);
  const Data data = make_data(c.batch);
  const std::vector<at::Tensor> parameters = net->parameters();
  double loss_read = 0;
  return timed(steps, [&] {
    for (const auto& p : parameters) p.mutable_grad() = at::Tensor();
    const at::Tensor loss = torch::mse_loss(net->forward(data.inputs), data.target);
    loss.backward();
    loss_read += loss.item<double>();
    const torch::NoGradGuard no_grad;
    std::vector<at::Tensor> weights, gradients;
    for (const auto& p : parameters) {
      weights.push_back(p.detach());
      gradients.push_back(p.grad());
    }
    at::_fused_sgd_(weights, gradients, {}, 0, 0, kLearningRate, 0, false, false, true, {}, {});
  });
}

std::vector<Layer> layers_of(const Case& c) {
  std::vector<Layer> layers;
  for (int64_t i = 0; i < c.layers; ++i) {
    layers.push_back(
        layer<torch::nn::LinearImpl>(fmt::format("linear{}", i), i == 0 ? kInputs : c.width, c.width));
    layers.push_back(layer<torch::nn::ReLUImpl>(fmt::format("relu{}", i)));
  }
  layers.push_back(layer<torch::nn::LinearImpl>("out", c.width, 1));
  return layers;
}

double engine(const Case& c, int ranks, WeightPlacement placement, int steps) {
  ReplicaOptions options;
  options.weights = placement;
  options.optimizer.kind = Optimizer::Kind::sgd;
  options.optimizer.learning_rate = kLearningRate;
  const Loss loss = [](const Tensors& outputs, const Batch& batch) {
    return LossValue{torch::mse_loss(outputs[0], batch.target, at::Reduction::Sum),
                     static_cast<double>(batch.samples)};
  };
  const Data data = make_data(c.batch);
  std::vector<double> seconds(static_cast<size_t>(ranks));
  unpin();
  if (ranks == 1) pin_to_cores_of_rank(0, usable_cores());
  GroupOptions group;
  group.pin = ranks > 1;  // one rank stays where it was put above
  run_thread_ranks(ranks, group, [&](Communicator& communicator) {
    at::set_num_threads(1);
    Replica replica(communicator, layers_of(c), options);
    const Range mine = share({0, c.batch}, ranks, communicator.rank());
    const Batch batch{{data.inputs.narrow(0, mine.begin, mine.size()).clone()},
                      data.target.narrow(0, mine.begin, mine.size()).clone(),
                      mine.size()};
    seconds[static_cast<size_t>(communicator.rank())] = timed(steps, [&] {
      replica.step({&batch, 1}, loss);
    });
  });
  return *std::max_element(seconds.begin(), seconds.end());
}

struct Variant {
  std::string name;
  int64_t batch;
  Block block;
  std::vector<double> seconds = {};
};

std::vector<Variant> variants_of(const Case& c, int ranks) {
  Case part = c;
  part.batch = c.batch / ranks;
  std::vector<Variant> variants;
  const auto add = [&](std::string name, int64_t batch, Block block) {
    variants.push_back({std::move(name), batch, std::move(block)});
  };
  add("plain, 1 thread", c.batch, [=](int steps) { return plain_flat(c, 1, steps); });
  add("plain, tensor list", c.batch, [=](int steps) { return plain_list(c, 1, steps); });
  add(fmt::format("plain, {} threads", ranks), c.batch,
      [=](int steps) { return plain_flat(c, ranks, steps); });
  add("troika, 1 rank", c.batch, [=](int steps) { return engine(c, 1, WeightPlacement::shared, steps); });
  add(fmt::format("troika, {} ranks shared", ranks), c.batch,
      [=](int steps) { return engine(c, ranks, WeightPlacement::shared, steps); });
  add(fmt::format("troika, {} ranks replicated", ranks), c.batch,
      [=](int steps) { return engine(c, ranks, WeightPlacement::replicated, steps); });
  add(fmt::format("troika, 1 rank, batch/{}", ranks), part.batch,
      [=](int steps) { return engine(part, 1, WeightPlacement::shared, steps); });
  return variants;
}

constexpr size_t kPlain = 0, kOneRank = 3, kShared = 4, kReplicated = 5, kPart = 6;

void measure(std::vector<Variant>& variants, double seconds, int rounds) {
  std::vector<int> steps;
  for (const Variant& v : variants) {
    const double one = v.block(5);
    const double of_block = seconds / rounds / static_cast<double>(variants.size());
    steps.push_back(std::max(3, static_cast<int>(of_block / one)));
  }
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < variants.size(); ++i) variants[i].seconds.push_back(variants[i].block(steps[i]));
  }
}

/// How many times faster `a` is than `b`, round by round.
bench::Spread speed_up(const Variant& a, const Variant& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < a.seconds.size(); ++i) ratios.push_back(b.seconds[i] / a.seconds[i]);
  return bench::spread_of(std::move(ratios));
}

std::string text(const bench::Spread& s, int digits) {
  return fmt::format("{:.{}f} ({:.{}f} - {:.{}f})", s.median, digits, s.low, digits, s.high, digits);
}

nlohmann::json to_json(const bench::Spread& s) {
  return {{"median", s.median}, {"low", s.low}, {"high", s.high}};
}

}  // namespace

int main(int count, char** arguments) {
  CLI::App app(
      "Times data-parallel training steps.\nExample: data_parallel --ranks 2 --seconds 20 --filter 1024");
  int ranks = 2, rounds = 9;
  double seconds = 20;
  bool json = false;
  std::string filter;
  app.add_option("--ranks", ranks, "thread ranks, and threads of the plain loop")
      ->check(CLI::Range(2, 1024))
      ->capture_default_str();
  app.add_option("--seconds", seconds, "for each model")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--rounds", rounds, "alternating blocks of each kind")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--filter", filter, "only models whose name has this in it");
  app.add_flag("--json", json, "one JSON object on standard output");
  CLI11_PARSE(app, count, arguments);

  nlohmann::json result = {
      {"ranks", ranks}, {"cores", usable_cores()}, {"rounds", rounds}, {"cases", nlohmann::json::array()}};
  for (const Case& c : {Case{64, 4, 32}, Case{256, 4, 64}, Case{1024, 4, 64}, Case{1024, 8, 16}}) {
    if (c.name().find(filter) == std::string::npos) continue;
    std::vector<Variant> variants = variants_of(c, ranks);
    measure(variants, seconds, rounds);
    bench::Table table({c.name(), "us a step (quartiles)", "samples/s", "x plain (quartiles)"});
    nlohmann::json rows = nlohmann::json::array();
    for (const Variant& v : variants) {
      std::vector<double> microseconds;
      for (const double s : v.seconds) microseconds.push_back(s * 1e6);
      const bench::Spread time = bench::spread_of(microseconds);
      const double rate = static_cast<double>(v.batch) / time.median * 1e6;
      const bench::Spread ratio = speed_up(v, variants[kPlain]);
      table.add({v.name, text(time, 1), fmt::format("{:.0f}", rate), text(ratio, 3)});
      rows.push_back({{"name", v.name},
                      {"batch", v.batch},
                      {"microseconds", to_json(time)},
                      {"samples_per_s", rate},
                      {"speed_up_over_plain", to_json(ratio)}});
    }
    const bench::Spread bound = speed_up(variants[kPart], variants[kOneRank]);
    const bench::Spread shared = speed_up(variants[kShared], variants[kOneRank]);
    const bench::Spread better = speed_up(variants[kShared], variants[kReplicated]);
    result["cases"].push_back({{"name", c.name()},
                               {"variants", rows},
                               {"one_rank_on_part_of_batch", to_json(bound)},
                               {"shared_over_one_rank", to_json(shared)},
                               {"shared_over_replicated", to_json(better)}});
    if (json) continue;
    table.print();
    fmt::print("  t1(G)/t1(G/{}) {}   shared/1 rank {}   shared/replicated {}\n\n", ranks, text(bound, 2),
               text(shared, 2), text(better, 2));
    std::fflush(stdout);
  }
  if (json) fmt::print("{}\n", result.dump(2));
  return 0;
}
