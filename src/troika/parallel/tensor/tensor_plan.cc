#include "troika/parallel/tensor/tensor_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <map>

#include "troika/base/error.h"
#include "troika/base/glob.h"
#include "troika/base/table.h"
#include "troika/base/text.h"
#include "troika/parallel/model.h"
#include "troika/parallel/tensor/rules.h"

namespace troika {
namespace {

constexpr char kWhole[] = "whole";

/// What one layer can be in the chain, before it is decided.
struct Candidates {
  LayerSplit layer;                      // what doesn't depend on the way
  std::vector<SplitWay> ways;            // a way without a name: whole
  std::map<std::string, int64_t> sizes;  // numbers in each parameter
  std::vector<std::string> matrices;     // those of two dimensions and more
  bool must_split = false;               // a tied parameter is cut at the other end
};

std::optional<Cut> cut_of(const SplitWay& way, const std::string& parameter) {
  const auto at = std::ranges::find(way.cuts, parameter, &CutTensor::name);
  return at == way.cuts.end() ? std::nullopt : std::optional<Cut>(at->cut);
}

/// Numbers in matrices that every rank has. Biases and norms would turn the plan for the few numbers they
/// are, and so would the longest of uneven slices.
int64_t matrices_left_whole(const Candidates& candidates, const SplitWay& way) {
  int64_t total = 0;
  for (const std::string& name : candidates.matrices) {
    if (!cut_of(way, name)) total += candidates.sizes.at(name);
  }
  return total;
}

int64_t per_rank(const Candidates& candidates, const SplitWay& way, int ranks) {
  int64_t total = candidates.layer.weights;
  for (const CutTensor& cut : way.cuts) {
    const auto size = candidates.sizes.find(cut.name);
    if (size == candidates.sizes.end()) continue;  // a buffer
    total -= size->second - size->second / cut.cut.whole_size() * cut.cut.size_of(ranks, 0);
  }
  return total;
}

/// "Linear" of "torch::nn::LinearImpl".
std::string short_name(std::string type) {
  if (const size_t colon = type.rfind("::"); colon != std::string::npos) type.erase(0, colon + 2);
  if (type.ends_with("Impl")) type.resize(type.size() - 4);
  return type;
}

Candidates candidates_of(const std::string& name, const LiveLayer& live, int ranks) {
  SplitOffer offer = offer_of(live, ranks);
  Candidates out;
  out.layer.layer = name;
  out.layer.kind = short_name(offer.kind);
  out.layer.is_elementwise = offer.is_elementwise;
  out.layer.why_whole = offer.why_whole;
  for (const auto& item : live.module->named_parameters()) {
    out.sizes[item.key()] = item.value().numel();
    if (item.value().dim() > 1) out.matrices.push_back(item.key());
    out.layer.weights += item.value().numel();
  }
  out.ways = std::move(offer.ways);
  return out;
}

Candidates candidates_of(const Layer& layer, int ranks) {
  Candidates out = candidates_of(layer.name, build_layer(layer, 0), ranks);
  for (const Tie& tie : layer.ties) {  // the owner's numbers
    out.layer.weights -= out.sizes[tie.parameter];
    out.sizes.erase(tie.parameter);
    std::erase(out.matrices, tie.parameter);
  }
  // What it puts goes to layers anywhere.
  if (!layer.puts.empty() || !layer.gets.empty()) {
    out.ways = only_whole(std::move(out.ways));
    out.layer.is_elementwise = false;
  }
  return out;
}

void choose(Candidates& candidates, const std::string& pattern, const std::string& choice) {
  if (choice == kWhole) {
    candidates.ways.clear();
    candidates.layer.why_whole = fmt::format("\"{}\" is set to whole", pattern);
    return;
  }
  std::vector<std::string> names{kWhole};
  for (const SplitWay& way : candidates.ways) {
    if (std::ranges::find(names, way.name) == names.end()) names.push_back(way.name);
  }
  if (std::ranges::find(names, choice) == names.end()) {
    fail_usage("layer \"{}\" can't be split by \"{}\"; it can be {}", candidates.layer.layer, choice,
               fmt::join(names, ", "));
  }
  std::erase_if(candidates.ways, [&](const SplitWay& way) { return way.name != choice; });
  for (SplitWay& way : candidates.ways) way.by_name_only = false;
}

void apply_choices(std::vector<Candidates>& all, const SplitChoices& choices) {
  std::vector<bool> used(choices.size());
  std::vector<std::string> names;
  for (Candidates& candidates : all) {
    names.push_back(candidates.layer.layer);
    for (size_t i = 0; i < choices.size(); ++i) {
      if (!matches_glob(choices[i].first, candidates.layer.layer)) continue;
      used[i] = true;
      choose(candidates, choices[i].first, choices[i].second);
      break;
    }
  }
  for (size_t i = 0; i < choices.size(); ++i) {
    if (!used[i])
      fail_usage("no layer to split is called \"{}\"{}", choices[i].first,
                 did_you_mean(choices[i].first, names));
  }
}

/// Leaves both sides of a tie only ways that cut the tensor alike: as the owner's first way that the user has
/// too, or not at all.
void agree(Candidates& owner, Candidates& user, const Tie& tie) {
  const auto keep = [](Candidates& of, const std::string& parameter, const std::optional<Cut>& cut) {
    std::erase_if(of.ways, [&](const SplitWay& way) { return cut_of(way, parameter) != cut; });
  };
  for (const SplitWay& way : owner.ways) {
    const std::optional<Cut> cut = cut_of(way, tie.of_owner);
    const bool both = std::ranges::any_of(
        user.ways, [&](const SplitWay& other) { return cut_of(other, tie.parameter) == cut; });
    if (!both) continue;
    keep(owner, tie.of_owner, cut);
    keep(user, tie.parameter, cut);
    owner.must_split = user.must_split = cut.has_value();
    return;
  }
  keep(owner, tie.of_owner, std::nullopt);
  keep(user, tie.parameter, std::nullopt);
  const char* const text = "it is tied to a layer that is cut in another way";
  if (owner.ways.empty()) owner.layer.why_whole = text;
  if (user.ways.empty()) user.layer.why_whole = text;
}

/// What is to be least, in this order.
struct Cost {
  int64_t matrices = 0;  // numbers in weight matrices that every rank has
  int64_t payload = 0;   // elements handed over
  int64_t weights = 0;   // numbers in all parameters that a rank has
  auto operator<=>(const Cost&) const = default;
};

/// The best chain up to some layer that ends in a spread.
struct Best {
  Cost cost;
  std::vector<int> ways;  // -1: whole
  Spread out;
};

/// `best` with one more layer, in one of its ways.
Best with_layer(const Best& best, const Candidates& candidates, int way, int ranks) {
  Best next = best;
  next.ways.push_back(way);
  const SplitWay whole;
  const SplitWay& chosen = way < 0 ? whole : candidates.ways[static_cast<size_t>(way)];
  const bool passes = way < 0 && candidates.layer.is_elementwise;
  if (!passes && !best.out.is_whole() && !(chosen.in == best.out)) {
    next.cost.payload += share({0, best.out.size}, ranks, 0).size();  // slices are put together
  }
  next.cost.matrices += matrices_left_whole(candidates, chosen);
  next.cost.weights += per_rank(candidates, chosen, ranks);
  next.cost.payload += chosen.payload - (next.ways.size() == 1 ? chosen.payload_for_input : 0);
  next.out = passes ? best.out : chosen.out;
  return next;
}

std::vector<int> best_ways(const std::vector<Candidates>& all, int ranks) {
  std::vector<Best> ends{Best{}};
  for (const Candidates& candidates : all) {
    std::vector<Best> next;
    for (const Best& best : ends) {
      for (int way = candidates.must_split ? 0 : -1; way < static_cast<int>(candidates.ways.size()); ++way) {
        if (way >= 0) {
          const Spread& in = candidates.ways[static_cast<size_t>(way)].in;
          if (!in.is_whole() && !(in == best.out)) continue;
        }
        Best one = with_layer(best, candidates, way, ranks);
        const auto same = std::ranges::find_if(next, [&](const Best& b) { return b.out == one.out; });
        if (same == next.end()) {
          next.push_back(std::move(one));
        } else if (one.cost < same->cost) {
          *same = std::move(one);
        }
      }
    }
    ends = std::move(next);
  }
  // Who reads the model's outputs wants them whole.
  for (Best& best : ends) {
    if (!best.out.is_whole()) best.cost.payload += share({0, best.out.size}, ranks, 0).size();
  }
  return std::ranges::min_element(ends, {}, &Best::cost)->ways;
}

LayerSplit decided(const Candidates& candidates, int way, const Spread& before, int ranks) {
  LayerSplit layer = candidates.layer;
  const SplitWay whole;
  if (way >= 0) layer.way = candidates.ways[static_cast<size_t>(way)];
  const SplitWay& chosen = layer.way ? *layer.way : whole;
  layer.is_elementwise = !layer.way && layer.is_elementwise;
  layer.in = layer.is_elementwise ? before : chosen.in;
  layer.out = layer.is_elementwise ? before : chosen.out;
  layer.joins = !before.is_whole() && layer.in.is_whole();
  layer.weights_per_rank = per_rank(candidates, chosen, ranks);
  layer.payload = chosen.payload + (layer.joins ? share({0, before.size}, ranks, 0).size() : 0);
  return layer;
}

TensorPlan best_plan(std::vector<Candidates>& all, int ranks) {
  TensorPlan plan{ranks, {}};
  for (Candidates& candidates : all)
    std::erase_if(candidates.ways, [](const SplitWay& way) { return way.by_name_only; });
  const std::vector<int> ways = best_ways(all, ranks);
  for (size_t i = 0; i < all.size(); ++i) {
    plan.layers.push_back(decided(all[i], ways[i], plan.before(i), ranks));
    if (i == 0 && plan.layers[0].way) plan.layers[0].payload -= plan.layers[0].way->payload_for_input;
  }
  return plan;
}

}  // namespace

TensorPlan plan_chain(const std::vector<NamedLayer>& layers, int ranks) {
  std::vector<Candidates> all;
  for (const auto& [name, live] : layers) all.push_back(candidates_of(name, live, ranks));
  return best_plan(all, ranks);
}

TensorPlan plan_tensor(const std::vector<Layer>& layers, int ranks, const SplitChoices& choices) {
  std::vector<Candidates> all;
  std::map<std::string, size_t> place;
  for (const Layer& layer : layers) {
    place[layer.name] = all.size();
    all.push_back(candidates_of(layer, ranks));
  }
  apply_choices(all, choices);
  for (const Layer& layer : layers) {
    for (const Tie& tie : layer.ties) {
      if (place.contains(tie.owner)) agree(all[place.at(tie.owner)], all[place.at(layer.name)], tie);
    }
  }
  return best_plan(all, ranks);
}

std::string table_of(const TensorPlan& plan) {
  const auto words = [](const LayerSplit& layer) {
    if (layer.way) return layer.way->name;
    if (layer.is_elementwise && !layer.in.is_whole()) return std::string("as it comes");
    return layer.why_whole.empty() || layer.weights == 0 ? std::string(kWhole)
                                                         : fmt::format("{}: {}", kWhole, layer.why_whole);
  };
  Table table({"layer", "kind", "weights", "per rank", "moved", "split"},
              {false, false, true, true, true, false});
  int64_t weights = 0, per_rank = 0, payload = 0;
  for (const LayerSplit& layer : plan.layers) {
    table.add({layer.layer, layer.kind, with_commas(layer.weights), with_commas(layer.weights_per_rank),
               with_commas(layer.payload), words(layer)});
    weights += layer.weights;
    per_rank += layer.weights_per_rank;
    payload += layer.payload;
  }
  table.add({"all", "", with_commas(weights), with_commas(per_rank), with_commas(payload), ""});
  return fmt::format(
      "layers over {} tensor ranks (moved: numbers that a rank hands over for each position of a "
      "sample, forward and backward)\n{}",
      plan.ranks, table.text());
}

}  // namespace troika
