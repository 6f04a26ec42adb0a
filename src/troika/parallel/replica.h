// Replica: one rank's part of a training run on a mesh of data x pipeline x tensor ranks: its lane's stages,
// its slices of them, and its share of the samples. The gradient of a step is the mean over the samples of
// the global batch, exact for any split of it: every contribution carries its weight (semantics.md).
//
// Threading: made and used by its rank's thread; construction, step(), evaluate() on several lanes and state
// changes are collective: every rank of the communicator does them in the same order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "troika/base/clock.h"
#include "troika/base/mesh.h"
#include "troika/comm/communicator.h"
#include "troika/parallel/model.h"
#include "troika/parallel/optimizer.h"
#include "troika/schedule/schedule.h"
#include "troika/trace/trace.h"

namespace troika {

class MemoryMeter;
struct TensorPlan;

/// One piece of work: consecutive samples of the global batch that belong to one (rank, micro-batch). samples
/// may be 0.
struct Batch {
  Tensors inputs;
  at::Tensor target;
  int64_t samples = 0;
  int64_t first_sample = 0;  // the first one's place in the global batch
  at::Tensor weights = {};   // of the samples, [samples]; undefined: 1 each
};

/// Sum of the samples' losses, and the weight to divide by in the end (samples or tokens).
struct LossValue {
  at::Tensor sum;
  double weight = 0;
};
using Loss = std::function<LossValue(const Tensors& outputs, const Batch& batch)>;

/// shared: the thread ranks have one copy of weights and optimizer state, each updates its slice in one fused
/// pass. replicated: every rank has its own; buckets are summed while backward goes on.
enum class WeightPlacement { shared, replicated };

/// How a model is cut and in which order its stages work.
struct PipelineOptions {
  Schedule schedule;            // passes only, with as many lanes as the mesh has pipeline ranks
  std::vector<int64_t> starts;  // the first layer of each of its stages
  /// Of an asynchronous schedule: the schedule of a window of so many steps. `schedule` is then one that
  /// holds as many versions of the weights as any.
  std::function<Schedule(int steps)> window = {};
  bool vertical_sync = false;  // all stages use the version of the weights that the first one did
};

struct ReplicaOptions {
  Mesh mesh = {0, 1, 1};                    // data = 0: as many as there are ranks
  std::optional<PipelineOptions> pipeline;  // needed if the mesh has more than one lane
  Optimizer optimizer;
  WeightPlacement weights = WeightPlacement::shared;
  uint64_t seed = 0;
  at::ScalarType dtype = at::kFloat;
  int64_t bucket_bytes = 1 << 20;  // replicated
  double clip_norm = 0;            // the largest norm of the mean gradient over all parameters; 0: any
  bool clip_by_stage = false;      // asynchronous: over the parameters of each stage by itself
  int64_t batch_norm_group = 0;    // consecutive samples of the global batch; 0: the whole batch
  bool bf16 = false;               // forward's products in bfloat16; weights and sums stay float32
  /// What a stage of this rank holds is charged to its meter, which outlives the replica; null: nobody
  /// counts.
  std::function<const MemoryMeter*(int stage)> meter_of = {};
  /// How layers are split over the mesh's tensor ranks; null: plan_tensor()'s choice.
  std::shared_ptr<const TensorPlan> tensor_plan = {};
};

struct StepResult {
  double loss = 0;            // sample mean over the global batch, before its update, the same on every rank
  double weight = 0;          // of the global batch
  double grad_norm = 0;       // of the mean gradient before clipping; 0 without clip_norm
  double waited_seconds = 0;  // this rank, for the others
};

/// What a step leaves behind when someone looks (verify, the picture); null members are not recorded.
struct StepProbe {
  /// Gets this rank's own copies, in the order of parameters().
  std::vector<at::Tensor>* mean_gradients = nullptr;
  std::vector<Span>* spans = nullptr;  // appended, in seconds from `spans_from`
  Clock::time_point spans_from;
};

/// Steps that an asynchronous schedule goes through from fill to drain. Steps and micro-batches count from 0
/// within it.
struct Window {
  int64_t steps = 1;
  /// How many samples this data rank has in each micro-batch of a step, and where; without tensors. Asked
  /// once for each step, at the start.
  std::function<std::vector<Batch>(int64_t step)> pieces;
  /// The same with tensors, asked for in order as its time comes, by lanes with the first or the last stage.
  std::function<Batch(int64_t step, int64_t micro_batch)> load;
  std::function<double(int64_t step)> learning_rate = {};  // null: as set
  /// This lane's update of a step is done: its loss, and parameters() has the new weights.
  std::function<void(int64_t step, const StepResult&)> on_step = {};
};

class Replica {
 public:
  /// Throws UsageError if the model can't be trained exactly on so many ranks, naming the layer, and if mesh,
  /// schedule and starts don't fit each other.
  Replica(Communicator& communicator, const std::vector<Layer>& layers, const ReplicaOptions& options);
  ~Replica();

  /// Forward and backward over the pieces of this data rank, one for each micro-batch, in the schedule's
  /// order, then mean over the ranks and update. The ranks of a data coordinate have the same pieces;
  /// those that hold neither the first nor the last stage may leave inputs and target away. A global batch of
  /// weight 0 changes nothing and is no step. Throws the same Error on every rank, naming step, rank and
  /// layer, if the loss is not finite (no weight is changed then, on any rank), and naming the parameter if a
  /// gradient is not finite though the loss is (seen while the weights are written, so they have changed;
  /// with clip_norm it is seen before, and they have not).
  StepResult step(std::span<const Batch> pieces, const Loss& loss, const StepProbe& probe = {});

  /// In place of step(), for an asynchronous schedule. At its end the pipeline is empty and all stages have
  /// done as many updates; what follows begins with the newest weights. `probe` is of each step, and read in
  /// on_step. Collective. Throws as step(), but for the weights: updates of earlier steps stand.
  void run_window(const Window& window, const Loss& loss, const StepProbe& probe = {});

  /// From the next step on; every rank sets the same.
  void set_learning_rate(double learning_rate);

  /// Forward without gradient, in evaluation mode; changes nothing. With several lanes every rank of a
  /// pipeline calls it, with inputs of the same size, and gets the last stage's outputs.
  Tensors evaluate(const Tensors& inputs);

  /// Trainable parameters of this rank's stages, in model order: views of the flat buffers; read only,
  /// between steps. Slices, where tensor ranks have them.
  const std::vector<NamedTensor>& parameters() const;
  const std::vector<NamedTensor>& others() const;

  int64_t steps_done() const;

  /// The ranks that have this one's stages and other samples.
  Communicator& data_ranks();

  /// Where tensor ranks have slices: the whole tensors of a list that is as parameters() or others(), on
  /// every rank. Collective over the tensor ranks.
  std::vector<NamedTensor> in_whole(const std::vector<NamedTensor>& tensors);
  /// Bytes that this rank has handed to its tensor peers so far.
  int64_t tensor_payload_bytes() const;

  /// Parameters of each stage of the model, the other lanes' too: numbers, not tensors.
  const std::vector<int64_t>& weights_of_stages() const;

  /// Everything a resumed run needs under names that don't depend on the mesh: "weights.<parameter>",
  /// "momentum.<parameter>" / "exp_avg." / "exp_avg_sq.", "optimizer_steps.<parameter>", "others.<name>".
  /// Copies. With several lanes or tensor ranks it is collective, and lane 0 gets all of the model, of tensor
  /// rank 0; the others their own.
  std::vector<NamedTensor> state() const;
  /// Throws Error listing what is missing, unexpected or of another shape; all ranks give the same tensors.
  void load_state(const std::vector<NamedTensor>& state, int64_t steps_done);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace troika
