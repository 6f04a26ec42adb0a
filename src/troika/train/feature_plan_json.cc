#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "troika/base/error.h"
#include "troika/train/encoder.h"

namespace troika {
namespace {

using Json = nlohmann::ordered_json;

Encoding encoding_of(const std::string& name) {
  for (const Encoding encoding :
       {Encoding::standardised, Encoding::boolean, Encoding::mask, Encoding::sin_day, Encoding::cos_day,
        Encoding::sin_year, Encoding::cos_year}) {
    if (name == name_of(encoding)) return encoding;
  }
  fail("\"{}\" is no encoding", name);
}

TargetKind kind_of(const std::vector<TargetColumn>& targets, bool tokens) {
  if (targets.empty()) fail("there is no target");
  if (tokens) return TargetKind::tokens;
  const size_t classes = targets[0].classes.size();
  return classes == 0 ? TargetKind::number : classes == 2 ? TargetKind::binary : TargetKind::classes;
}

double positive(const Json& number) {
  const double value = number.get<double>();
  if (!(value > 0)) fail("a deviation is {}, expected above 0", value);
  return value;
}

FeaturePlan from_json(const Json& json) {
  FeaturePlan plan;
  for (const Json& each : json.at("floats")) {
    FloatInput input;
    input.column = each.at("column").get<std::string>();
    input.encoding = encoding_of(each.at("encoding").get<std::string>());
    input.timestamp = each.value("timestamp", false);
    if (input.encoding == Encoding::standardised) {
      input.mean = each.at("mean").get<double>();
      input.deviation = positive(each.at("deviation"));
    }
    plan.floats.push_back(std::move(input));
  }
  for (const Json& each : json.at("categories")) {
    CategoryInput input;
    input.column = each.at("column").get<std::string>();
    input.dictionary = each.at("dictionary").get<std::vector<std::string>>();
    input.values = static_cast<int64_t>(input.dictionary.size()) + 1;
    plan.categories.push_back(std::move(input));
  }
  for (const Json& each : json.at("targets")) {
    TargetColumn target;
    target.column = each.at("column").get<std::string>();
    if (each.contains("classes")) {
      target.classes = each.at("classes").get<std::vector<std::string>>();
    } else {
      target.mean = each.at("mean").get<double>();
      target.deviation = positive(each.at("deviation"));
    }
    plan.targets.push_back(std::move(target));
  }
  plan.kind = kind_of(plan.targets, json.value("tokens", false));
  if (const auto found = json.find("windows"); found != json.end()) {
    plan.windows.window = found->at("window").get<int64_t>();
    plan.windows.horizon = found->at("horizon").get<int64_t>();
    plan.windows.stride = found->at("stride").get<int64_t>();
    plan.windows.series = found->at("series").get<std::vector<std::string>>();
    plan.windows.time = found->at("time").get<std::string>();
    plan.windows.max_gap = found->at("max_gap").get<double>();
    if (plan.windows.window < 1 || plan.windows.horizon < 0 || plan.windows.stride < 1) {
      fail("windows of {} rows, {} ahead, every {}", plan.windows.window, plan.windows.horizon,
           plan.windows.stride);
    }
  }
  plan.left_out = json.at("left_out").get<std::vector<std::string>>();
  return plan;
}

/// What a column must be, for people.
const char* type_of(const FloatInput& input) {
  if (input.timestamp) return "timestamp";
  switch (input.encoding) {
    case Encoding::standardised:
      return "float or int";
    case Encoding::boolean:
      return "bool";
    case Encoding::mask:
      return "float, int or bool";
    case Encoding::sin_day:
    case Encoding::cos_day:
    case Encoding::sin_year:
    case Encoding::cos_year:
      return "timestamp";
  }
  return "";
}

bool is_number(const Column& column) {
  return column.type == ColumnType::number || column.type == ColumnType::integer;
}

bool fits(const FloatInput& input, const Column& column) {
  if (input.timestamp) return column.type == ColumnType::timestamp;
  switch (input.encoding) {
    case Encoding::standardised:
      return is_number(column);
    case Encoding::boolean:
      return column.type == ColumnType::boolean;
    case Encoding::mask:
      return is_number(column) || column.type == ColumnType::boolean;
    case Encoding::sin_day:
    case Encoding::cos_day:
    case Encoding::sin_year:
    case Encoding::cos_year:
      return column.type == ColumnType::timestamp;
  }
  return false;
}

[[noreturn]] void wrong_type(const Dataset& dataset, const Column& column, const char* expected) {
  fail_usage("column \"{}\" of {} is of type {}, but the model was trained with {}", column.name,
             dataset.folder.string(), name_of(column.type), expected);
}

/// The same texts under the same numbers; `more` says whether there may be others at the end.
void require_dictionary(const Dataset& dataset, const Column& column,
                        const std::vector<std::string>& expected, bool more) {
  static const std::vector<std::string> kBoolean = {"false", "true"};
  const std::vector<std::string>& got = column.type == ColumnType::boolean ? kBoolean : column.categories;
  for (size_t code = 0; code < std::min(got.size(), expected.size()); ++code) {
    if (got[code] == expected[code]) continue;
    fail_usage(
        "column \"{}\" of {} has other categories than the model was trained with: number {} is \"{}\", "
        "expected \"{}\"; pack the rows with the categories of the dataset trained with: troika pack NEW.csv "
        "-o NEW --like OLD",
        column.name, dataset.folder.string(), code, got[code], expected[code]);
  }
  if (!more && got.size() > expected.size()) {
    fail_usage(
        "target \"{}\" of {} has {} classes, but the model was trained with {}: \"{}\" is new; troika pack "
        "NEW.csv -o NEW --like OLD makes it null",
        column.name, dataset.folder.string(), got.size(), expected.size(), got[expected.size()]);
  }
}

void bind_target(TargetColumn& target, const Dataset& dataset) {
  const auto found = std::ranges::find(dataset.columns, target.column, &Column::name);
  target.index = -1;
  if (found == dataset.columns.end()) return;
  if (target.classes.empty()) {
    if (!is_number(*found)) wrong_type(dataset, *found, "float or int");
  } else {
    if (found->type != ColumnType::category && found->type != ColumnType::boolean) {
      wrong_type(dataset, *found, "classes");
    }
    require_dictionary(dataset, *found, target.classes, false);
  }
  target.storage = found->storage;
  target.index = found->index;
}

}  // namespace

std::string to_json(const FeaturePlan& plan) {
  Json out;
  out["floats"] = Json::array();
  for (const FloatInput& input : plan.floats) {
    Json each{{"column", input.column}, {"encoding", name_of(input.encoding)}};
    if (input.timestamp) each["timestamp"] = true;
    if (input.encoding == Encoding::standardised) {
      each["mean"] = input.mean;
      each["deviation"] = input.deviation;
    }
    out["floats"].push_back(each);
  }
  out["categories"] = Json::array();
  for (const CategoryInput& input : plan.categories) {
    out["categories"].push_back({{"column", input.column}, {"dictionary", input.dictionary}});
  }
  out["targets"] = Json::array();
  for (const TargetColumn& target : plan.targets) {
    Json each{{"column", target.column}};
    if (target.classes.empty()) {
      each["mean"] = target.mean;
      each["deviation"] = target.deviation;
    } else {
      each["classes"] = target.classes;
    }
    out["targets"].push_back(each);
  }
  if (plan.windows.any()) {
    const WindowOptions& windows = plan.windows;
    out["windows"] = {{"window", windows.window}, {"horizon", windows.horizon}, {"stride", windows.stride},
                      {"series", windows.series}, {"time", windows.time},       {"max_gap", windows.max_gap}};
  }
  if (plan.kind == TargetKind::tokens) out["tokens"] = true;
  out["left_out"] = plan.left_out;
  return out.dump(1) + "\n";
}

FeaturePlan feature_plan_from_json(const std::string& text) {
  try {
    return from_json(Json::parse(text));
  } catch (const Json::exception& error) {
    fail("{}", error.what());
  }
}

FeaturePlan read_features(const Path& path) {
  const std::string text = read_text(path);
  try {
    return feature_plan_from_json(text);
  } catch (const Error& error) {
    fail("{} doesn't say how columns become inputs: {}", path.string(), error.what());
  }
}

void bind_features(FeaturePlan& plan, const Dataset& dataset) {
  FeaturePlan bound = plan;
  for (FloatInput& input : bound.floats) {
    const Column& column = dataset.column(input.column);
    if (!fits(input, column)) wrong_type(dataset, column, type_of(input));
    input.storage = column.storage;
    input.index = column.index;
  }
  for (CategoryInput& input : bound.categories) {
    const Column& column = dataset.column(input.column);
    if (column.type != ColumnType::category) wrong_type(dataset, column, "category");
    require_dictionary(dataset, column, input.dictionary, true);
    input.index = column.index;
  }
  for (TargetColumn& target : bound.targets) bind_target(target, dataset);
  for (const std::string& name : bound.windows.series) dataset.column(name);
  if (!bound.windows.time.empty()) dataset.column(bound.windows.time);
  plan = std::move(bound);
}

}  // namespace troika
