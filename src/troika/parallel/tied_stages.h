// Parameters that are tied across stages of a pipeline: the owner's stage is the first that uses one. The
// other stages have copies; the gradients of their uses go to the owner before it reduces, and its new
// numbers come back after the step. Uses within one stage are the model's own matter (Model::tied).
//
// Threading: one object per rank, used by its thread; all lanes call the same in the same step.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "troika/parallel/model.h"
#include "troika/parallel/tensor_link.h"
#include "troika/parallel/wiring.h"

namespace troika {

/// Whether a layer of the stage uses or owns a tied parameter.
bool has_ties(const Wiring& wiring, const StageWiring& stage);

class TiedStages {
 public:
  /// `models` are this lane's, by stage; `link` is null if there is one lane. All outlive it.
  TiedStages(const std::vector<Layer>& layers, const Wiring& wiring, const Schedule& schedule, int lane,
             TensorLink* link, std::map<int, Model*> models);

  bool any() const { return !ties_.empty(); }

  /// The same schedule with the reductions of the stages concerned behind everything but updates, later
  /// stages first, and updates behind that: then all uses have their gradients, and all lanes agree on the
  /// order of messages.
  Schedule with_ties_last(const Schedule& schedule) const;

  /// Before a stage reduces: sends the gradients of all uses in this lane to their owners, once a step, then
  /// adds what has come from the uses of this stage's parameters, in the order of layers.
  void exchange_gradients(int stage, int64_t step);

  /// Gives the owners' numbers to all uses: at the start, after every step that changed them, after a load.
  void publish(int64_t step);

 private:
  struct StageTie {
    int user = 0, owner = 0;  // stages
    std::string user_name, owner_name;
  };
  /// The ties between two stages, in the order of layers.
  std::vector<StageTie> between(int user, int owner) const;
  at::Tensor use_of(const StageTie& tie) const;
  at::Tensor owner_of(const StageTie& tie) const;
  bool is_mine(int stage) const { return models_.contains(stage); }
  void send_gradients(int64_t step);
  void deliver(const Action& message, int64_t step, Parcel parcel, int to_stage);
  Parcel collect(const Action& message, int64_t step, int from_stage);

  std::vector<StageTie> ties_;
  std::set<int> tied_stages_;
  std::vector<int> lane_of_stage_;
  TensorLink* link_;
  std::map<int, Model*> models_;
  int64_t sent_step_ = 0;
  std::map<Action, Parcel> here_;  // from a stage of this lane to another one of it
};

}  // namespace troika
