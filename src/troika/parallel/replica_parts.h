// What a Replica consists of. Internal to it. Threading: as Replica.
#pragma once

#include <map>
#include <optional>

#include "troika/comm/mesh_communicators.h"
#include "troika/parallel/executor.h"
#include "troika/parallel/replica.h"
#include "troika/parallel/tensor/tensor_axis.h"
#include "troika/parallel/tensor/tensor_plan.h"
#include "troika/parallel/tied_stages.h"
#include "troika/parallel/trained_stage.h"
#include "troika/parallel/wiring.h"

namespace troika {

struct Replica::State {
  State(Communicator& c, const std::vector<Layer>& layers, const ReplicaOptions& o);

  Communicator& communicator;
  ReplicaOptions options;
  Mesh mesh;
  int lane;
  std::optional<MeshCommunicators> axes;  // absent where all ranks are data ranks
  std::optional<TensorAxis> tensor;       // absent with one tensor rank
  std::shared_ptr<const TensorPlan> tensor_plan;
  std::unique_ptr<TensorLink> link;
  Wiring wiring;
  std::map<int, std::unique_ptr<TrainedStage>> stages;  // of this lane, by number
  Schedule schedule;                                    // for as many micro-batches as there were last
  Schedule forwards;                                    // of an evaluation in several stages
  std::optional<Schedule> window;                       // asynchronous: of the last length
  std::optional<TiedStages> ties;                       // across stages
  std::vector<NamedTensor> parameters, others;          // of all stages of this lane
  Cuts cuts;                                            // of both
  // Of all stages of the model: tensors, and numbers in them.
  std::vector<int64_t> parameters_of_stage, weights_of_stage;
  int64_t steps = 0;

  Communicator& data() { return axes ? *axes->data : communicator; }
  Communicator& lanes() { return *axes->pipeline; }
  bool is_pipelined() const { return mesh.pipeline > 1; }

  void use_schedule_for(size_t pieces);
  void count_parameters();
  LaneWork lane_work();
  bool is_asynchronous() const { return options.pipeline && options.pipeline->window; }
  void build_stages(const std::vector<Layer>& layers);
  void refuse_asynchronous(const std::vector<Layer>& layers) const;
  int kept_versions(int stage) const;
  const Schedule& window_of(int64_t length);
  class WindowRun;
  void list_tensors();
  void split_mesh(const std::vector<Layer>& layers);
  std::string from_lane_of(int64_t stage, const std::string& text);
  void discard();
  [[noreturn]] void fail_for_loss(int bad_rank, int64_t step, const char* consequence);
  double scale_of_clipping(double& grad_norm);
  [[noreturn]] void fail_for_gradient(int64_t parameter);
  [[noreturn]] static void fail_for_updated_gradient(const std::vector<NamedTensor>& parameters,
                                                     int64_t step);
  Tensors evaluate_in_stages(const Tensors& inputs);
  const Totals& totals() const { return stages.begin()->second->totals(); }
};

}  // namespace troika
