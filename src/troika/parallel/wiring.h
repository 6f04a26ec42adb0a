// Wiring: which layers a stage has, and what crosses its borders, worked out from the list of layers alone,
// before any layer is built. Threading: values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "troika/base/split.h"
#include "troika/parallel/model.h"
#include "troika/schedule/schedule.h"

namespace troika {

/// Tensors that go from one stage to a later one in one message: the chain's (what the last layer of a stage
/// gives to the first layer of the next one), then those that were put, in the order of `skips`, which has a
/// name once for each layer that gets it there.
struct StageEdge {
  int stage = 0;  // at the far end
  bool chain = false;
  std::vector<std::string> skips;
  bool operator==(const StageEdge&) const = default;
};

/// Layer `user`'s parameter is layer `owner`'s, by their numbers and the parameters' names within them.
struct Tied {
  int64_t user = 0;
  std::string user_parameter;
  int64_t owner = 0;
  std::string owner_parameter;
  bool operator==(const Tied&) const = default;
};

struct StageWiring {
  int stage = 0;
  Range layers;                // of the whole list
  std::vector<StageEdge> in;   // ascending by stage
  std::vector<StageEdge> out;  // ascending by stage
  bool operator==(const StageWiring&) const = default;
};

struct Wiring {
  std::vector<StageWiring> stages;
  std::vector<Tied> ties;   // in the order of the layers that use them
  std::vector<Edge> edges;  // of the schedule: the chain and the skips between stages
};

/// `starts` has the first layer of each stage, ascending, the first one 0; no stage is empty. Throws
/// UsageError naming the layer for: two layers of one name, a get that no earlier layer puts, two puts of one
/// name, a put that nobody gets, a tie to a layer that doesn't exist, isn't earlier or is tied itself, and
/// starts that are out of order, with the arithmetic shown.
Wiring wire(const std::vector<Layer>& layers, const std::vector<int64_t>& starts);

/// Of the errors of wire() those that a piece of the list shows by itself: a tie to a layer that it doesn't
/// have is left to wire().
void check_layers(const std::vector<Layer>& layers, const Border& border = {});

/// "<layer>.<parameter>", or "<parameter>" for a layer whose name is empty.
std::string full_name(const std::string& layer, const std::string& parameter);

/// The stage that has a layer.
int stage_of_layer(const Wiring& wiring, int64_t layer);

/// The layers of one stage.
std::vector<Layer> layers_of(const std::vector<Layer>& layers, const StageWiring& stage);

/// The names of what a stage's model takes in and gives out beside the chain.
Border border_of(const StageWiring& wiring);

}  // namespace troika
