// Two pipelines of two stages, each with half of the samples, on four threads: a model of your own with a
// skip and a tied weight. One rank that has the whole model and the whole batch gets the same loss.
#include <torch/torch.h>

#include <iostream>

#include "troika/comm/rank_group.h"
#include "troika/schedule/catalogue.h"
#include "troika/train/fit.h"

using namespace troika;
constexpr int64_t kWords = 50, kWidth = 32, kBatch = 64;

struct Embed : torch::nn::Module {  // one output for the next layer, one for whoever gets "word"
  torch::nn::Embedding table{register_module("table", torch::nn::Embedding(kWords, kWidth))};
  Tensors forward(const Tensors& x) { return {table(x[0]), table(x[0])}; }
};
struct Add : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x, torch::Tensor word) { return torch::relu(x) + word; }
};

double last_loss(Mesh mesh, int micro_batches) {
  const std::vector<Layer> layers = {
      layer<Embed>("embed").put("word"), layer<torch::nn::LinearImpl>("middle", kWidth, kWidth),
      layer<Add>("add").get("word"),  // the second stage begins here
      layer<torch::nn::LinearImpl>("out", kWidth, kWords).tie("weight", "embed", "table.weight")};
  ReplicaOptions options;
  options.mesh = mesh;
  options.dtype = torch::kDouble;  // leaves no rounding to speak of
  if (mesh.pipeline == 2) options.pipeline = {make_schedule("1f1b", {2, micro_batches}), {0, 2}};
  const Loss loss = per_sample_loss(
      [](auto output, auto target) { return -output.log_softmax(1).gather(1, target.unsqueeze(1)); });
  const torch::Tensor words = torch::arange(kBatch) % kWords, next = (7 * words + 3) % kWords;
  std::vector<double> last(mesh.ranks());  // the same on every rank
  run_thread_ranks(mesh.ranks(), {}, [&](Communicator& ranks) {
    Replica replica(ranks, layers, options);
    const int data = mesh.coordinate(ranks.rank()).data;
    std::vector<Batch> pieces;
    for (int i = 0; i < micro_batches; ++i) {  // each data rank has its share of each micro-batch
      const auto [from, to] = piece_of({0, kBatch}, micro_batches, i, mesh.data, data);
      pieces.push_back({{words.slice(0, from, to)}, next.slice(0, from, to), to - from, from});
    }
    for (int step = 0; step < 200; ++step) last[ranks.rank()] = replica.step(pieces, loss).loss;
  });
  return last[0];
}

int main() {
  const double one = last_loss({1, 1}, 1), four = last_loss({2, 2}, 4);  // data x pipeline
  std::cout << "one rank " << one << ", 2 x 2 ranks " << four << "\n";
  return std::abs(one - four) < 1e-10 * one ? 0 : 1;
}
