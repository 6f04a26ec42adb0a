// BatchNorm by groups: however a batch is dealt to ranks and micro-batches, a step is that of one rank, bit
// for bit the micro-batched reference and within rounding a loop that normalises by hand.
#include "troika/parallel/batch_norm.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/small_models.h"
#include "troika/comm/rank_group.h"
#include "troika/parallel/micro_batched_reference.h"
#include "troika/parallel/step_context.h"

namespace troika::test {
namespace {

constexpr int kSteps = 2;

/// Running statistics of one layer, kept by hand.
struct ByHand {
  double momentum = 0.1;  // 0: the average of all groups
  bool affine = true, tracks = true;
  int64_t groups = 0;
  torch::Tensor mean, variance;
};

/// [n, c], [n, c, l] and [n, c, h, w]; affine or not; each kind of momentum; without running statistics;
/// called twice.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    using Options = torch::nn::BatchNormOptions;
    in = register_module("in", torch::nn::Linear(kFeatures, 6));
    rows_norm = register_module("rows_norm", torch::nn::BatchNorm1d(6));
    conv = register_module("conv", torch::nn::Conv1d(torch::nn::Conv1dOptions(1, 3, 3).padding(1)));
    line_norm =
        register_module("line_norm", torch::nn::BatchNorm1d(Options(3).affine(false).momentum(std::nullopt)));
    area_norm = register_module("area_norm", torch::nn::BatchNorm2d(Options(3).track_running_stats(false)));
    twice_norm = register_module("twice_norm", torch::nn::BatchNorm1d(Options(6).momentum(0.3)));
    out = register_module("out", torch::nn::Linear(18, 1));
  }

  template <typename Norm>
  torch::Tensor run(const torch::Tensor& x, const Norm& norm) {
    torch::Tensor y = torch::tanh(norm(0, *rows_norm, in(x)));
    y = torch::tanh(norm(1, *twice_norm, y)) + y;
    y = torch::tanh(norm(1, *twice_norm, 2 * y + 1));
    y = norm(2, *line_norm, conv(y.unsqueeze(1)));
    y = norm(3, *area_norm, torch::tanh(y).view({-1, 3, 2, 3}));
    return out(y.flatten(1));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return run(x, [](int, auto& module, const torch::Tensor& y) { return module.forward(y); });
  }

  torch::nn::Linear in{nullptr}, out{nullptr};
  torch::nn::Conv1d conv{nullptr};
  torch::nn::BatchNorm1d rows_norm{nullptr}, line_norm{nullptr}, twice_norm{nullptr};
  torch::nn::BatchNorm2d area_norm{nullptr};
};

std::vector<ByHand> start_by_hand(at::ScalarType dtype) {
  std::vector<ByHand> all(4);
  all[1].momentum = 0.3;
  all[2].momentum = 0;
  all[2].affine = false;
  all[3].tracks = false;
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].mean = torch::zeros({i < 2 ? 6 : 3}, dtype);
    all[i].variance = torch::ones({i < 2 ? 6 : 3}, dtype);
  }
  return all;
}

template <typename Module>
torch::Tensor normalise_by_hand(ByHand& hand, Module& module, const torch::Tensor& x, int64_t group) {
  std::vector<int64_t> over{0}, shape(static_cast<size_t>(x.dim()), 1);
  for (int64_t d = 2; d < x.dim(); ++d) over.push_back(d);
  shape[1] = x.size(1);
  std::vector<torch::Tensor> parts;
  for (const torch::Tensor& part : x.split(group == 0 ? x.size(0) : group)) {
    const auto values = static_cast<double>(part.numel() / part.size(1));
    const torch::Tensor mean = part.sum(over) / values;
    const torch::Tensor centred = part - mean.view(shape);
    const torch::Tensor squares = centred.square().sum(over);
    torch::Tensor y = centred / torch::sqrt(squares.view(shape) / values + 1e-5);
    if (hand.affine) y = y * module.weight.view(shape) + module.bias.view(shape);
    parts.push_back(y);
    ++hand.groups;
    const double m = hand.momentum > 0 ? hand.momentum : 1.0 / static_cast<double>(hand.groups);
    hand.mean = (1 - m) * hand.mean + m * mean.detach();
    hand.variance = (1 - m) * hand.variance + m * squares.detach() / (values - 1);
  }
  return torch::cat(parts);
}

std::vector<Layer> net() { return {layer<NetImpl>("net")}; }

struct Case {
  int ranks, micro_batches;
  int64_t batch, group;
  ReplicaOptions options;

  std::string name() const {
    return fmt::format("{} ranks, {} micro-batches, batch {}, groups of {}, {}, {}", ranks, micro_batches,
                       batch, group, options.dtype == at::kFloat ? "float32" : "float64",
                       options.weights == WeightPlacement::shared ? "shared" : "replicated");
  }
  /// Another part of the table in each step.
  std::vector<std::vector<Batch>> pieces(int step) const {
    std::vector<std::vector<Batch>> all(static_cast<size_t>(ranks));
    for (int r = 0; r < ranks; ++r) {
      for (int j = 0; j < micro_batches; ++j) {
        const Range part = piece_of({0, batch}, micro_batches, j, ranks, r, group == 0 ? batch : group);
        Batch piece = rows({part.begin + 11 * step, part.end + 11 * step}, 1, options.dtype);
        piece.first_sample = part.begin;
        all[static_cast<size_t>(r)].push_back(std::move(piece));
      }
    }
    return all;
  }
};

Case make_case(int ranks, int micro_batches, int64_t batch, int64_t group, at::ScalarType dtype) {
  Case c{ranks, micro_batches, batch, group, {}};
  c.options.optimizer.kind = Optimizer::Kind::sgd;  // the biases before a norm have no gradient but rounding
  c.options.optimizer.learning_rate = 0.05;
  c.options.optimizer.momentum = 0.5;
  c.options.dtype = dtype;
  c.options.seed = 5;
  c.options.bucket_bytes = 128;
  c.options.batch_norm_group = group;
  return c;
}

struct Record {
  std::vector<double> losses;
  std::vector<std::vector<at::Tensor>> gradients, weights, buffers;
};

std::vector<Record> run_engine(const Case& c) {
  std::vector<Record> records(static_cast<size_t>(c.ranks));
  run_thread_ranks(c.ranks, {}, [&](Communicator& communicator) {
    at::set_num_threads(1);
    Record& record = records[static_cast<size_t>(communicator.rank())];
    Replica replica(communicator, net(), c.options);
    std::vector<at::Tensor> mean;
    StepProbe probe;
    probe.mean_gradients = &mean;
    for (int step = 0; step < kSteps; ++step) {
      const auto pieces = c.pieces(step)[static_cast<size_t>(communicator.rank())];
      record.losses.push_back(replica.step(pieces, squared_error, probe).loss);
      record.gradients.push_back(mean);
      record.weights.push_back(copies_of(replica.parameters()));
      record.buffers.push_back(copies_of(replica.others()));
      communicator.barrier();  // shared weights: no rank goes on while another still copies
    }
  });
  return records;
}

Record run_reference(const Case& c) {
  Record record;
  MicroBatchedReference reference(net(), c.options, c.ranks);
  std::vector<at::Tensor> mean;
  for (int step = 0; step < kSteps; ++step) {
    record.losses.push_back(reference.step(c.pieces(step), squared_error, &mean).loss);
    record.gradients.push_back(mean);
    record.weights.push_back(copies_of(reference.parameters()));
    record.buffers.push_back(copies_of(reference.others()));
  }
  return record;
}

/// A run of the whole batch with torch's optimizer; `forward` gives the outputs, `buffers` what it left
/// behind. With `given`, each step leaves those weights: torch's optimizer rounds a momentum otherwise than
/// the engine.
template <typename Forward, typename Buffers>
Record run_plain(const Case& c, const Forward& forward, const Buffers& buffers, const Model& model,
                 const Record* given = nullptr) {
  Record record;
  std::vector<at::Tensor> parameters;
  for (const NamedTensor& p : model.parameters()) parameters.push_back(p.tensor);
  torch::optim::SGD optimizer(
      parameters,
      torch::optim::SGDOptions(c.options.optimizer.learning_rate).momentum(c.options.optimizer.momentum));
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const Batch batch = rows({11 * step, 11 * step + c.batch}, 1, c.options.dtype);
    const torch::Tensor sum = (forward(batch) - batch.target).square().sum();
    record.losses.push_back(sum.item<double>() / static_cast<double>(c.batch));
    sum.backward();
    std::vector<at::Tensor> gradients;
    for (at::Tensor& p : parameters) {
      p.mutable_grad().div_(static_cast<double>(c.batch));
      gradients.push_back(p.grad().clone());
    }
    record.gradients.push_back(gradients);
    optimizer.step();
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; given != nullptr && i < parameters.size(); ++i) {
      parameters[i].copy_(given->weights[static_cast<size_t>(step)][i]);
    }
    record.weights.push_back(copies_of(model.parameters()));
    record.buffers.push_back(buffers());
  }
  return record;
}

/// In the order of Model::others(): mean, variance and count of rows_norm, line_norm, twice_norm.
std::vector<at::Tensor> buffers_of(const std::vector<ByHand>& hand) {
  std::vector<at::Tensor> out;
  for (const size_t i : {0, 2, 1}) {
    out.insert(out.end(), {hand[i].mean, hand[i].variance, torch::tensor(hand[i].groups)});
  }
  return out;
}

Record run_by_hand(const Case& c) {
  const Model model(net(), c.options.seed, c.options.dtype);
  auto module = std::dynamic_pointer_cast<NetImpl>(model.layers()[0].second.module);
  std::vector<ByHand> hand = start_by_hand(c.options.dtype);
  const auto forward = [&](const Batch& batch) {
    return module->run(batch.inputs[0], [&](int i, auto& norm, const torch::Tensor& x) {
      // A layer's groups are in the order of its calls.
      return normalise_by_hand(hand[static_cast<size_t>(i)], norm, x, c.group);
    });
  };
  return run_plain(
      c, forward, [&] { return buffers_of(hand); }, model);
}

void expect_bitwise(const Record& a, const Record& b, const std::string& what) {
  for (size_t step = 0; step < kSteps; ++step) {
    EXPECT_EQ(a.losses[step], b.losses[step]) << what << ", loss of step " << step + 1;
    EXPECT_TRUE(bitwise_equal(a.gradients[step], b.gradients[step]))
        << what << ", gradients of step " << step + 1;
    EXPECT_TRUE(bitwise_equal(a.weights[step], b.weights[step])) << what << ", weights of step " << step + 1;
    EXPECT_TRUE(bitwise_equal(a.buffers[step], b.buffers[step])) << what << ", buffers of step " << step + 1;
  }
}

double largest_difference(const std::vector<at::Tensor>& x, const std::vector<at::Tensor>& y) {
  if (x.size() != y.size()) return 1e300;
  double largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    largest = std::max(largest, (x[i].to(at::kDouble) - y[i].to(at::kDouble)).abs().max().item<double>());
  }
  return largest;
}

void expect_near(const Record& a, const Record& b, const std::string& what) {
  constexpr double kTolerance = 1e-10;  // float64; all numbers are about 1
  for (size_t step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(a.losses[step], b.losses[step], kTolerance) << what;
    EXPECT_LE(largest_difference(a.gradients[step], b.gradients[step]), kTolerance) << what << ", gradients";
    EXPECT_LE(largest_difference(a.weights[step], b.weights[step]), kTolerance) << what << ", weights";
    EXPECT_LE(largest_difference(a.buffers[step], b.buffers[step]), kTolerance) << what << ", buffers";
  }
}

class BatchNormParity : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, BatchNormParity, testing::Values(1, 2, 3, 4));

// Ragged batches, and fewer groups than pieces, so that ranks are without samples.
TEST_P(BatchNormParity, EqualsTheReferenceBitwiseAndOneByHandWithinRounding) {
  at::set_num_threads(1);
  for (const int micro_batches : {1, 2}) {
    for (const int64_t batch : {8, 16, 20, 24}) {
      for (const int64_t group : {2, 4, 8}) {
        const bool other = (batch / 4 + group / 2) % 2 == 0;  // each type meets each group and each batch
        Case c = make_case(GetParam(), micro_batches, batch, group, other ? at::kFloat : at::kDouble);
        const Record reference = run_reference(c);
        if (c.options.dtype == at::kDouble) expect_near(reference, run_by_hand(c), c.name() + ", by hand");
        for (const WeightPlacement placement : {WeightPlacement::shared, WeightPlacement::replicated}) {
          c.options.weights = placement;
          const std::vector<Record> records = run_engine(c);
          for (size_t rank = 0; rank < records.size(); ++rank) {
            expect_bitwise(records[rank], reference, fmt::format("{}, rank {}", c.name(), rank));
          }
        }
        if (HasFailure()) return;
      }
    }
  }
}

TEST(BatchNorm, OneGroupOnOneRankIsTorchsOwnBitForBit) {
  at::set_num_threads(1);
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const Case c = make_case(1, 1, 16, 0, dtype);  // dividing by 16 is exact
    const Model model(net(), c.options.seed, dtype);
    const auto forward = [&](const Batch& batch) { return model.forward(batch.inputs)[0]; };
    const Record engine = run_engine(c)[0];
    const auto buffers = [&] { return copies_of(model.others()); };
    expect_bitwise(engine, run_plain(c, forward, buffers, model, &engine), c.name());
  }
}

// Without a log: the plain run of a whole batch in groups.
TEST(BatchNorm, KeepsItsOwnStatisticsWithoutALog) {
  at::set_num_threads(1);
  const Case c = make_case(1, 1, 20, 8, at::kDouble);
  const Model model(net(), c.options.seed, c.options.dtype);
  const auto forward = [&](const Batch& batch) {
    const StepScope scope({.samples = {0, c.batch}, .batch_norm_group = c.group});
    return model.forward(batch.inputs)[0];
  };
  expect_near(run_plain(
                  c, forward, [&] { return copies_of(model.others()); }, model),
              run_by_hand(c), c.name());
}

TEST(BatchNorm, AResumedRunGoesOnAsOneThatWasNotStopped) {
  const Case c = make_case(2, 2, 16, 4, at::kFloat);
  const Record whole = run_engine(c)[0];
  std::vector<at::Tensor> buffers, weights;
  run_thread_ranks(2, {}, [&](Communicator& communicator) {
    at::set_num_threads(1);
    const auto rank = static_cast<size_t>(communicator.rank());
    std::vector<NamedTensor> state;
    {
      Replica first(communicator, net(), c.options);
      first.step(c.pieces(0)[rank], squared_error);
      state = first.state();
      communicator.barrier();
    }
    Replica second(communicator, net(), c.options);
    second.load_state(state, 1);
    second.step(c.pieces(1)[rank], squared_error);
    if (rank == 1) buffers = copies_of(second.others());
    if (rank == 1) weights = copies_of(second.parameters());
    communicator.barrier();
  });
  EXPECT_TRUE(bitwise_equal(weights, whole.weights[1]));
  EXPECT_TRUE(bitwise_equal(buffers, whole.buffers[1]));
}

}  // namespace
}  // namespace troika::test
