// Parameters that are tied across stages of a pipeline: the owner's stage is the first that uses one. The
// other stages have copies; the gradients of their uses go to the owner before it reduces, and its new
// numbers come back after the step. Uses within one stage are the model's own matter (Model::tied).
//
// Threading: one object per rank, used by its thread; all lanes call the same in the same step.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "troika/parallel/model.h"
#include "troika/parallel/tensor_link.h"
#include "troika/parallel/wiring.h"

namespace troika {

/// Whether a layer of the stage uses or owns a tied parameter.
bool has_ties(const Wiring& wiring, const StageWiring& stage);

class TiedStages {
 public:
  /// `models` are this lane's, by stage; `link` is null if there is one lane. Both outlive it. Throws
  /// UsageError for an owner that trains no such parameter.
  TiedStages(const std::vector<Layer>& layers, const Wiring& wiring,
             const std::map<int, const Model*>& models, std::vector<int> lane_of_stage, TensorLink* link);

  bool any() const { return !pairs_.empty(); }

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
  /// One use; a side that is another lane's has no tensor here.
  struct Use {
    std::string name, owner_name;
    at::Tensor use, owner;
  };
  /// The uses in one stage of what another one owns, in the order of layers.
  struct Pair {
    int owner = 0, user = 0;
    std::vector<Use> uses;
  };

  bool is_mine(int stage) const { return stages_.contains(stage); }
  void deliver(const Action& message, int64_t step, Parcel parcel, int to_stage);
  Parcel collect(const Action& message, int64_t step, int from_stage);

  std::vector<Pair>
      pairs_;             // later owners first, of each its users in order: so everybody sends and receives
  std::set<int> stages_;  // of this lane
  std::set<int> tied_stages_;  // of all
  std::vector<int> lane_of_stage_;
  TensorLink* link_;
  int64_t sent_step_ = 0;
  std::map<Action, Parcel> here_;  // from a stage of this lane to another one of it
};

}  // namespace troika
