// Data x pipeline x tensor in every small product: as one rank, within rounding in float64; and bit for bit a
// program without data or pipeline ranks that has the same slices.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/nn/modules/embedding.h>

#include "parallel/pipeline_chain.h"
#include "support/error_of.h"
#include "troika/comm/rank_group.h"
#include "troika/parallel/micro_batched_reference.h"
#include "troika/parallel/tensor/slices.h"
#include "troika/parallel/tensor/tensor_plan.h"
#include "troika/schedule/catalogue.h"

namespace troika::test {
namespace {

constexpr int kSteps = 3;
// Sums in another order, in float64; measured 3e-15.
constexpr double kRounding = 1e-12;

const Mesh kMeshes[] = {{2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {2, 2, 1}, {2, 1, 2},
                        {1, 2, 2}, {2, 2, 2}, {3, 1, 2}, {1, 1, 3}, {1, 2, 3}};

/// A decoder's shape: the table at both ends is one.
std::vector<Layer> tied_chain() {
  std::vector<Layer> layers = chain(true, true);
  struct Codes : torch::nn::Module {
    at::Tensor forward(const at::Tensor& x) { return x.select(1, 0).abs().mul(7).to(at::kLong).remainder(9); }
  };
  layers.insert(layers.begin(), layer<torch::nn::EmbeddingImpl>("table", 9, kFeatures));
  layers.insert(layers.begin(), layer<Codes>("codes"));
  layers.back() = layer<torch::nn::LinearImpl>("out", kWidth, kFeatures);
  layers.push_back(layer<torch::nn::LinearImpl>("head", torch::nn::LinearOptions(kFeatures, 9).bias(false))
                       .tie("weight", "table", "weight"));
  return layers;
}

LossValue squares(const Tensors& outputs, const Batch& batch) {
  return {outputs.at(0).sub(batch.target.select(1, 0).unsqueeze(1)).pow(2).sum(),
          static_cast<double>(batch.samples)};
}

struct Case {
  std::vector<Layer> layers;
  Mesh mesh;
  std::string schedule = "1f1b";
  int micro_batches = 3;
  double clip_norm = 0;
  WeightPlacement weights = WeightPlacement::shared;
  int64_t batch = 7;  // ragged in every way

  ReplicaOptions options() const {
    ReplicaOptions o;
    o.mesh = mesh;
    o.optimizer.kind = Optimizer::Kind::adamw;
    o.optimizer.learning_rate = 0.01;
    o.optimizer.weight_decay = 0.01;
    o.seed = 4;
    o.dtype = at::kDouble;
    o.clip_norm = clip_norm;
    o.weights = weights;
    if (mesh.pipeline > 1) {
      PipelineOptions pipeline;
      pipeline.schedule = make_schedule(schedule, {.lanes = mesh.pipeline, .micro_batches = micro_batches});
      pipeline.starts = even_starts(layers.size(), pipeline.schedule.num_stages());
      o.pipeline = pipeline;
    }
    return o;
  }
  std::vector<std::vector<Batch>> pieces(int step, int ranks, int parts) const {
    return pieces_of(batch, ranks, parts, 1, at::kDouble, 5 * step);
  }
};

/// What all ranks agree on: whole tensors by name.
Record run_mesh(const Case& c) {
  Record record;
  record.gradients.resize(kSteps);
  record.weights.resize(kSteps);
  std::mutex mutex;
  run_thread_ranks(c.mesh.ranks(), {}, [&](Communicator& communicator) {
    at::set_num_threads(1);
    const int data = c.mesh.coordinate(communicator.rank()).data;
    Replica replica(communicator, c.layers, c.options());
    std::vector<at::Tensor> mean;
    StepProbe probe;
    probe.mean_gradients = &mean;
    for (int step = 0; step < kSteps; ++step) {
      const StepResult result = replica.step(
          c.pieces(step, c.mesh.data, c.micro_batches)[static_cast<size_t>(data)], squares, probe);
      std::vector<NamedTensor> gradients;
      for (size_t i = 0; i < mean.size(); ++i) gradients.push_back({replica.parameters()[i].name, mean[i]});
      const auto whole_gradients = copies_of(replica.in_whole(gradients));
      const auto whole_weights = copies_of(replica.in_whole(replica.parameters()));
      {
        const std::scoped_lock lock(mutex);
        add(record.gradients[static_cast<size_t>(step)], gradients, whole_gradients, "gradient of ");
        add(record.weights[static_cast<size_t>(step)], gradients, whole_weights, "weight ");
        if (communicator.rank() == 0) {
          record.losses.push_back(result.loss);
          record.norms.push_back(result.grad_norm);
        } else if (static_cast<int>(record.losses.size()) > step) {
          EXPECT_EQ(record.losses[static_cast<size_t>(step)], result.loss);
          EXPECT_EQ(record.norms[static_cast<size_t>(step)], result.grad_norm);
        }
      }
      communicator.barrier();
    }
  });
  return record;
}

/// The same slices, without data or pipeline ranks.
Record run_slices(const Case& c) {
  Record record;
  record.gradients.resize(kSteps);
  record.weights.resize(kSteps);
  std::mutex mutex;
  run_thread_ranks(c.mesh.tensor, {}, [&](Communicator& communicator) {
    at::set_num_threads(1);
    TensorAxis axis(communicator);
    const TensorPlan plan = plan_tensor(c.layers, axis.size());
    MicroBatchedReference reference(c.layers, c.options(), c.mesh.data,
                                    axis.size() > 1 ? ModelSlices{&axis, &plan, 0} : ModelSlices{});
    std::vector<at::Tensor> mean;
    for (int step = 0; step < kSteps; ++step) {
      const StepResult result = reference.step(c.pieces(step, c.mesh.data, c.micro_batches), squares, &mean);
      std::vector<NamedTensor> gradients;
      for (size_t i = 0; i < mean.size(); ++i) gradients.push_back({reference.parameters()[i].name, mean[i]});
      const auto whole_gradients = copies_of(in_whole(reference.cuts(), axis, gradients, true));
      const auto whole_weights = copies_of(in_whole(reference.cuts(), axis, reference.parameters(), true));
      const std::scoped_lock lock(mutex);
      add(record.gradients[static_cast<size_t>(step)], gradients, whole_gradients, "gradient of ");
      add(record.weights[static_cast<size_t>(step)], gradients, whole_weights, "weight ");
      if (axis.rank() == 0) {
        record.losses.push_back(result.loss);
        record.norms.push_back(result.grad_norm);
      }
    }
  });
  return record;
}

double difference(const std::map<std::string, at::Tensor>& x, const std::map<std::string, at::Tensor>& y) {
  EXPECT_EQ(x.size(), y.size());
  double worst = 0;
  for (const auto& [name, value] : y) {
    if (!x.contains(name)) {
      ADD_FAILURE() << name;
      continue;
    }
    worst = std::max(worst, relative_difference({x.at(name)}, {value}));
  }
  return worst;
}

void expect_same(const Record& x, const Record& y, double tolerance, const std::string& what) {
  for (int step = 0; step < kSteps; ++step) {
    const auto s = static_cast<size_t>(step);
    EXPECT_NEAR(x.losses[s], y.losses[s], tolerance * std::abs(y.losses[s])) << what << ", step " << step;
    EXPECT_NEAR(x.norms[s], y.norms[s], tolerance * y.norms[s]) << what << ", step " << step;
    EXPECT_LE(difference(x.gradients[s], y.gradients[s]), tolerance) << what << ", step " << step;
    EXPECT_LE(difference(x.weights[s], y.weights[s]), tolerance) << what << ", step " << step;
  }
}

void expect_parity(Case c, const std::string& what) {
  const Record mesh = run_mesh(c);
  // One piece for each micro-batch as the mesh's schedule adds them, but the bits of a norm over slices
  // depend on how they are cut.
  expect_same(mesh, run_slices(c), c.clip_norm > 0 ? kRounding : 0, what + ", slices");
  c.mesh = {1, 1, 1};
  c.micro_batches = 1;
  expect_same(mesh, run_slices(c), kRounding, what + ", one rank");
}

std::vector<std::pair<std::string, std::vector<Layer>>> models() {
  return {{"mlp", mlp().layers}, {"chain", chain(true, true)}, {"tied", tied_chain()}};
}

TEST(TensorMesh, EveryProductEqualsOneRank) {
  for (const auto& [name, layers] : models()) {
    for (const Mesh& mesh : kMeshes) {
      if (mesh.pipeline > static_cast<int>(layers.size())) continue;
      expect_parity({layers, mesh}, fmt::format("{} on {}", name, to_string(mesh)));
    }
  }
}

TEST(TensorMesh, SchedulesClippingAndReplicatedWeightsAreAsBefore) {
  for (const char* schedule : {"gpipe", "interleaved-1f1b", "zb-h1", "zb-v"}) {
    for (const double clip : {0.0, 0.05}) {
      const Case c{tied_chain(), {2, 2, 2},
                   schedule,     4,
                   clip,         clip > 0 ? WeightPlacement::replicated : WeightPlacement::shared};
      expect_parity(c, fmt::format("{}, clip {}", schedule, clip));
    }
  }
}

}  // namespace
}  // namespace troika::test
