#include "troika/parallel/wiring.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "troika/base/error.h"
#include "troika/base/text.h"
#include "troika/schedule/partition.h"

namespace troika {
namespace {

using Names = std::vector<std::string>;
using Places = std::unordered_map<std::string, size_t>;

Places places_of(const std::vector<Layer>& layers) {
  Places places;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (!places.emplace(layers[i].name, i).second) {
      fail_usage("two layers are called \"{}\": weights are saved and seeded by name, so give each its own",
                 layers[i].name);
    }
  }
  return places;
}

Places putters_of(const std::vector<Layer>& layers) {
  Places putters;
  for (size_t i = 0; i < layers.size(); ++i) {
    for (const std::string& name : layers[i].puts) {
      const auto [before, is_new] = putters.emplace(name, i);
      if (is_new) continue;
      fail_usage("layers \"{}\" and \"{}\" both put \"{}\": give one of them another name",
                 layers[before->second].name, layers[i].name, name);
    }
  }
  return putters;
}

void check_skips(const std::vector<Layer>& layers, const Border& border) {
  const Places putters = putters_of(layers);
  std::unordered_set<std::string> available(border.imports.begin(), border.imports.end());
  std::unordered_set<std::string> taken(border.exports.begin(), border.exports.end());
  for (const std::string& name : border.imports) {
    if (const auto putter = putters.find(name); putter != putters.end()) {
      fail_usage("layer \"{}\" puts \"{}\", which an earlier part of the model puts too",
                 layers[putter->second].name, name);
    }
  }
  for (const Layer& layer : layers) {
    for (const std::string& name : layer.gets) {
      taken.insert(name);
      if (available.contains(name)) continue;
      if (const auto later = putters.find(name); later != putters.end()) {
        fail_usage("layer \"{}\" gets \"{}\", but layer \"{}\", which puts it, isn't earlier", layer.name,
                   name, layers[later->second].name);
      }
      fail_usage("layer \"{}\" gets \"{}\", which no earlier layer puts{}", layer.name, name,
                 did_you_mean(name, Names(available.begin(), available.end())));
    }
    available.insert(layer.puts.begin(), layer.puts.end());
  }
  for (const Layer& layer : layers) {
    for (const std::string& name : layer.puts) {
      if (!taken.contains(name)) {
        fail_usage("layer \"{}\" puts \"{}\", and no later layer gets it{}: leave it out, or get it",
                   layer.name, name, did_you_mean(name, Names(taken.begin(), taken.end())));
      }
    }
  }
  for (const std::string& name : border.exports) {
    TROIKA_ASSERT(available.contains(name), fmt::format("\"{}\" goes out and nobody puts it", name));
  }
}

std::string tie_text(const Layer& user, const Tie& tie) {
  return fmt::format("layer \"{}\" ties \"{}\" to \"{}\" of layer \"{}\"", user.name, tie.parameter,
                     tie.of_owner, tie.owner);
}

void check_ties(const std::vector<Layer>& layers, const Places& places) {
  std::set<std::pair<std::string, std::string>> tied;  // (layer, parameter)
  for (size_t i = 0; i < layers.size(); ++i) {
    for (const Tie& tie : layers[i].ties) {
      const auto owner = places.find(tie.owner);
      if (owner != places.end() && owner->second >= i) {
        fail_usage("{}, which isn't an earlier layer: tie the later layer's parameter to the earlier one's",
                   tie_text(layers[i], tie));
      }
      if (tied.contains({tie.owner, tie.of_owner})) {
        fail_usage("{}, which is tied itself: tie both to the first of them", tie_text(layers[i], tie));
      }
      if (!tied.emplace(layers[i].name, tie.parameter).second) {
        fail_usage("{}, but \"{}\" is tied already", tie_text(layers[i], tie), tie.parameter);
      }
    }
  }
}

void check_starts(const std::vector<int64_t>& starts, int64_t layers) {
  if (starts.empty() || starts[0] != 0) {
    fail_usage("stage 0 must start at layer 0, not at {}",
               starts.empty() ? "none: there is no stage" : fmt::format("layer {}", starts[0]));
  }
  for (size_t s = 1; s < starts.size(); ++s) {
    if (starts[s] <= starts[s - 1]) {
      fail_usage(
          "stage {} starts at layer {} and stage {} at layer {}: {} - {} = {} layers for stage {}, which "
          "needs "
          "at least one",
          s - 1, starts[s - 1], s, starts[s], starts[s], starts[s - 1], starts[s] - starts[s - 1], s - 1);
    }
  }
  if (starts.back() >= layers) {
    fail_usage(
        "stage {} starts at layer {}, but there are {} layers, 0 to {}: {} stages need at least {} layers",
        starts.size() - 1, starts.back(), layers, layers - 1, starts.size(), starts.size());
  }
}

/// A message along (from, to): the chain, if they are neighbours, and skips in the order of their puts, once
/// for each read: gradients of reads are added one by one, as in a serial run.
std::map<Edge, Names> messages(const std::vector<Layer>& layers, const std::vector<int64_t>& starts) {
  const auto stage_of = [&](size_t layer) {
    return static_cast<int>(std::upper_bound(starts.begin(), starts.end(), static_cast<int64_t>(layer)) -
                            starts.begin()) -
           1;
  };
  std::unordered_map<std::string, std::multiset<int>> takers;  // stages by skip
  for (size_t i = 0; i < layers.size(); ++i) {
    for (const std::string& name : layers[i].gets) takers[name].insert(stage_of(i));
  }
  std::map<Edge, Names> result;
  for (const Edge& edge : chain_edges(static_cast<int>(starts.size()))) result[edge];
  for (size_t i = 0; i < layers.size(); ++i) {
    for (const std::string& name : layers[i].puts) {
      for (const int to : takers[name]) {
        if (to != stage_of(i)) result[{stage_of(i), to}].push_back(name);
      }
    }
  }
  return result;
}

}  // namespace

void check_layers(const std::vector<Layer>& layers, const Border& border) {
  if (layers.empty()) fail_usage("the model has no layer: give at least one (name, factory)");
  check_ties(layers, places_of(layers));
  check_skips(layers, border);
}

Wiring wire(const std::vector<Layer>& layers, const std::vector<int64_t>& starts) {
  check_layers(layers, {});
  check_starts(starts, static_cast<int64_t>(layers.size()));
  Wiring wiring;
  const Places places = places_of(layers);
  for (size_t i = 0; i < layers.size(); ++i) {
    for (const Tie& tie : layers[i].ties) {
      const auto owner = places.find(tie.owner);
      if (owner == places.end()) {
        Names earlier;
        for (size_t j = 0; j < i; ++j) earlier.push_back(layers[j].name);
        fail_usage("{}, but there is no such layer{}", tie_text(layers[i], tie),
                   did_you_mean(tie.owner, earlier));
      }
      wiring.ties.push_back(
          {static_cast<int64_t>(i), tie.parameter, static_cast<int64_t>(owner->second), tie.of_owner});
    }
  }
  for (size_t s = 0; s < starts.size(); ++s) {
    wiring.stages.push_back({static_cast<int>(s), layers_of_stage(starts, s, layers.size()), {}, {}});
  }
  for (const auto& [edge, skips] : messages(layers, starts)) {
    const bool chain = edge.to == edge.from + 1;
    wiring.edges.push_back(edge);
    wiring.stages[static_cast<size_t>(edge.from)].out.push_back({edge.to, chain, skips});
    wiring.stages[static_cast<size_t>(edge.to)].in.push_back({edge.from, chain, skips});
  }
  return wiring;
}

int stage_of_layer(const Wiring& wiring, int64_t layer) {
  const auto stage =
      std::ranges::find_if(wiring.stages, [layer](const StageWiring& s) { return layer < s.layers.end; });
  TROIKA_ASSERT(stage != wiring.stages.end(), fmt::format("layer {} is in no stage", layer));
  return stage->stage;
}

std::vector<Layer> layers_of(const std::vector<Layer>& layers, const StageWiring& stage) {
  return {layers.begin() + stage.layers.begin, layers.begin() + stage.layers.end};
}

Border border_of(const StageWiring& wiring) {
  Border border;
  for (const StageEdge& edge : wiring.in) {
    border.imports.insert(border.imports.end(), edge.skips.begin(), edge.skips.end());
  }
  for (const StageEdge& edge : wiring.out) {
    for (const std::string& skip : edge.skips) {
      if (std::ranges::find(border.exports, skip) == border.exports.end()) border.exports.push_back(skip);
    }
  }
  return border;
}

std::string full_name(const std::string& layer, const std::string& parameter) {
  return layer.empty() ? parameter : layer + "." + parameter;
}

}  // namespace troika
