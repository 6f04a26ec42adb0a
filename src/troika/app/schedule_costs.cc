#include "troika/app/schedule_costs.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "troika/base/error.h"
#include "troika/base/text.h"
#include "troika/schedule/schedule_file.h"

namespace troika {
namespace {

using Json = nlohmann::ordered_json;

struct CostField {
  const char* key;
  double StageCost::*value;
};

constexpr CostField kFields[] = {
    {"forward", &StageCost::forward_s},
    {"input", &StageCost::input_s},
    {"weight", &StageCost::weight_s},
    {"load", &StageCost::load_s},
    {"reduce", &StageCost::reduce_s},
    {"update", &StageCost::update_s},
    {"activation_bytes", &StageCost::activation_bytes},
    {"weight_pending_bytes", &StageCost::weight_pending_bytes},
    {"kept_input_bytes", &StageCost::kept_input_bytes},
    {"output_bytes", &StageCost::output_bytes},
    {"weight_bytes", &StageCost::weight_bytes},
    {"gradient_bytes", &StageCost::gradient_bytes},
    {"optimizer_bytes", &StageCost::optimizer_bytes},
};
constexpr const char* kBackward = "backward";
constexpr double kLargest = 1e18;

// Reads one object of the file; says where it stands in every message.
class Reader {
 public:
  Reader(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json.is_object()) fail("{}: expected an object {{...}}, got {}", where_, json.type_name());
  }

  void only(const std::vector<std::string>& keys) const {
    for (const auto& [key, value] : json_.items()) {
      if (std::ranges::find(keys, key) != keys.end()) continue;
      fail("{}: unknown key \"{}\"{}; the keys are {}", where_, printable(key, 40), did_you_mean(key, keys),
           fmt::join(keys, ", "));
    }
  }

  bool has(const char* key) const { return json_.contains(key); }

  void needs_one_of(const std::vector<const char*>& keys) const {
    if (std::ranges::any_of(keys, [&](const char* key) { return has(key); })) return;
    fail("{}: expected its seconds, \"{}\"", where_, fmt::join(keys, "\" or \""));
  }

  void number(const char* key, double& into) const {
    if (!has(key)) return;
    const Json& value = json_[key];
    const double got = value.is_number() ? value.get<double>() : -1;
    if (!std::isfinite(got) || got < 0 || got > kLargest) {
      fail("{}: {}: expected a number from 0 to {:g}, got {}", where_, key, kLargest,
           printable(value.dump(), 40));
    }
    into = got;
  }

  int lane(const char* key) const {
    const Json* const value = has(key) ? &json_[key] : nullptr;
    if (value == nullptr || !value->is_number_integer() || *value < 0 || *value > 1'000'000) {
      fail("{}: {}: expected a lane, 0 or more, got {}", where_, key,
           value == nullptr ? "nothing" : printable(value->dump(), 40));
    }
    return value->get<int>();
  }

 private:
  const Json& json_;
  std::string where_;
};

StageCost stage_of(const Json& json, const std::string& where) {
  const Reader reader(json, where);
  std::vector<std::string> keys;
  for (const CostField& field : kFields) keys.emplace_back(field.key);
  keys.insert(keys.begin() + 3, kBackward);
  reader.only(keys);
  reader.needs_one_of({"forward"});
  reader.needs_one_of({kBackward, "input", "weight"});
  StageCost cost;
  cost.forward_s = cost.input_s = cost.weight_s = 0;
  for (const CostField& field : kFields) reader.number(field.key, cost.*field.value);
  if (!reader.has(kBackward)) return cost;
  double whole = 0;
  reader.number(kBackward, whole);
  cost.backward_s = whole;
  // A part that isn't measured is what the other leaves; where neither is, half.
  if (!reader.has("input") && !reader.has("weight")) cost.input_s = cost.weight_s = whole / 2;
  if (reader.has("input") && !reader.has("weight")) cost.weight_s = std::max(0.0, whole - cost.input_s);
  if (reader.has("weight") && !reader.has("input")) cost.input_s = std::max(0.0, whole - cost.weight_s);
  return cost;
}

Link link_of(const Json& json, const std::string& where, std::vector<std::string> more_keys) {
  const Reader reader(json, where);
  std::vector<std::string> keys{"latency", "seconds_per_byte"};
  keys.insert(keys.end(), more_keys.begin(), more_keys.end());
  reader.only(keys);
  Link link;
  reader.number("latency", link.latency_s);
  reader.number("seconds_per_byte", link.seconds_per_byte);
  return link;
}

const Json& list_of(const Json& file, const char* key, const std::string& path) {
  if (!file[key].is_array()) fail("{}: {}: expected a list [...], got {}", path, key, file[key].type_name());
  return file[key];
}

// Of a key that stands twice, JSON's reader would take the last one and say nothing.
Json parse_costs(const std::string& text, const std::string& path) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto on_event = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second) {
      fail("{}: the key \"{}\" is given twice", path, printable(parsed.get<std::string>(), 40));
    }
    return true;
  };
  try {
    return Json::parse(text, on_event);
  } catch (const Json::exception& error) {
    std::string_view reason = error.what();  // "[json.exception.NAME] reason"
    reason.remove_prefix(std::min(reason.size(), reason.find("] ") + 2));
    fail("{} is not JSON: {}", path, printable(reason, 200));
  }
}

}  // namespace

std::string costs_help() {
  std::string text =
      "Measured costs are a file: {\"stages\": [{\"forward\": 0.011, \"backward\": 0.02}, ...],\n"
      "  \"link\": {\"latency\": 2e-5, \"seconds_per_byte\": 1e-9}, "
      "\"links\": [{\"from\": 0, \"to\": 1, ...}]}\n"
      "  One stage stands for all. Seconds and bytes of a micro-batch:\n  backward";
  size_t column = text.size() - text.rfind('\n');
  for (const CostField& field : kFields) {
    const std::string key = field.key;
    text += column + key.size() > 90 ? ",\n  " + key : ", " + key;
    column = text.size() - text.rfind('\n');
  }
  return text + "\n";
}

CostTable read_costs(const std::string& path) {
  const Json file = parse_costs(read_bounded(path), path);
  const Reader reader(file, path);
  reader.only({"stages", "link", "links"});
  if (!reader.has("stages") || !file["stages"].is_array() || file["stages"].empty()) {
    fail("{}: expected \"stages\": a list with one object per stage, or one object for all", path);
  }
  CostTable table{path, {}};
  for (const Json& stage : file["stages"]) {
    table.costs.stages.push_back(
        stage_of(stage, fmt::format("{}: stage {}", path, table.costs.stages.size())));
  }
  if (reader.has("link")) table.costs.link = link_of(file["link"], path + ": link", {});
  if (!reader.has("links")) return table;
  for (const Json& link : list_of(file, "links", path)) {
    const Reader ends(link, path + ": links");
    const std::pair lanes{ends.lane("from"), ends.lane("to")};
    if (lanes.first == lanes.second) {
      fail("{}: links: from {} to {}: within a lane nothing is sent", path, lanes.first, lanes.second);
    }
    const bool is_new =
        table.costs.links.emplace(lanes, link_of(link, path + ": links", {"from", "to"})).second;
    if (!is_new) fail("{}: links: from {} to {} is given twice", path, lanes.first, lanes.second);
  }
  return table;
}

CostModel for_schedule(const CostTable& table, const Schedule& schedule) {
  const int stages = schedule.num_stages();
  CostModel costs = table.costs;
  const auto got = costs.stages.size();
  if (got == 1) costs.stages.resize(static_cast<size_t>(stages), costs.stages.front());
  if (costs.stages.size() != static_cast<size_t>(stages)) {
    fail("{} has the costs of {} stages, the schedule has {}: give one per stage, or one for all", table.path,
         got, stages);
  }
  for (const auto& [lanes, link] : costs.links) {
    const int lane = std::max(lanes.first, lanes.second);
    if (lane < schedule.num_lanes()) continue;
    fail("{}: links: there is no lane {}: the schedule has {}, from 0 on", table.path, lane,
         schedule.num_lanes());
  }
  return costs;
}

}  // namespace troika
