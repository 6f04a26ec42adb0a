#include "troika/train/recipe_reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "troika/base/text.h"

namespace troika::internal {
namespace {

std::string describe(const toml::node& node) {
  std::ostringstream out;
  out << toml::node_view<const toml::node>(node);
  std::ostringstream type;
  type << node.type();
  return fmt::format("{} ({})", printable(out.str(), 60), type.str());
}

}  // namespace

RecipeSource::RecipeSource(const Path& path, const std::vector<std::string>& settings)
    : file_(path.string()) {
  const std::string text = read_text(path);
  try {
    root_ = toml::parse(text, file_);
  } catch (const toml::parse_error& error) {
    fail_usage("{}:{}:{}: not TOML: {}", file_, error.source().begin.line, error.source().begin.column,
               error.description());
  }
  for (const std::string& setting : settings) apply(setting);
}

void RecipeSource::apply(const std::string& setting) {
  const size_t equals = setting.find('=');
  const std::string key(trim(std::string_view(setting).substr(0, equals)));
  const std::vector<std::string> parts = split_text(key, '.');
  if (equals == std::string::npos || parts.size() < 2 || std::ranges::count(parts, std::string())) {
    fail_usage("--set {}: expected section.key=value, such as --set train.steps=5", setting);
  }
  const std::string literal(trim(std::string_view(setting).substr(equals + 1)));
  toml::table parsed;
  try {
    parsed = toml::parse("value = " + literal);
  } catch (const toml::parse_error&) {
    fail_usage("--set {}: {} is not a TOML value; text needs quotes of its own: --set '{}=\"{}\"'", setting,
               literal.empty() ? "nothing" : literal, key, literal);
  }
  if (parsed.size() != 1) fail_usage("--set {}: expected one value", setting);
  toml::table* table = &root_;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    table = table->insert(parts[i], toml::table{}).first->second.as_table();
    if (table == nullptr) fail_usage("--set {}: {} is not a table in {}", setting, parts[i], file_);
  }
  table->insert_or_assign(parts.back(), std::move(*parsed.get("value")));
  settings_[key] = setting;
}

void RecipeSource::erase(const std::string& section, const std::string& key) {
  if (toml::table* table = root_[section].as_table()) table->erase(key);
}

std::string RecipeSource::where(const std::string& key, const toml::node* node) const {
  // A setting may hold the whole table that the key is in.
  for (std::string set = key;; set.resize(set.rfind('.'))) {
    const auto setting = settings_.find(set);
    if (setting != settings_.end()) return "--set " + setting->second;
    if (set.find('.') == std::string::npos) break;
  }
  if (node == nullptr || node->source().begin.line == 0) return file_;
  return fmt::format("{}:{}", file_, node->source().begin.line);
}

SectionReader::SectionReader(const RecipeSource& source, const toml::table* table, std::string name)
    : source_(source), table_(table), name_(std::move(name)) {}

void SectionReader::fail_at(const std::string& key, const std::string& text) const {
  const std::string full = name_.empty() ? key : name_ + "." + key;
  fail_usage("{}: {} {}", source_.where(full, table_ == nullptr ? nullptr : table_->get(key)), full, text);
}

const toml::node* SectionReader::take(const std::string& key) {
  if (!std::ranges::count(known_, key)) known_.push_back(key);
  return table_ == nullptr ? nullptr : table_->get(key);
}

void SectionReader::integer(const std::string& key, int64_t least, int64_t most,
                            std::optional<int64_t>& value) {
  const toml::node* const node = take(key);
  if (node == nullptr) return;
  if (!node->is_integer()) fail_at(key, fmt::format("is {}, expected a whole number", describe(*node)));
  const int64_t got = **node->as_integer();
  if (got < least || got > most) {
    fail_at(key, most == INT64_MAX ? fmt::format("is {}, expected at least {}", got, least)
                                   : fmt::format("is {}, expected {} to {}", got, least, most));
  }
  value = got;
}

void SectionReader::integer(const std::string& key, int64_t least, int64_t most, int64_t& value) {
  std::optional<int64_t> got;
  integer(key, least, most, got);
  value = got.value_or(value);
}

void SectionReader::number(const std::string& key, double least, double most, double& value) {
  const toml::node* const node = take(key);
  if (node == nullptr) return;
  if (!node->is_number()) fail_at(key, fmt::format("is {}, expected a number", describe(*node)));
  const double got =
      node->is_integer() ? static_cast<double>(**node->as_integer()) : **node->as_floating_point();
  if (!(got >= least && got <= most)) {  // a NaN is out of range, too
    fail_at(key, fmt::format("is {}, expected {} to {}", got, least, most));
  }
  value = got;
}

void SectionReader::text(const std::string& key, std::string& value) {
  const toml::node* const node = take(key);
  if (node == nullptr) return;
  if (!node->is_string()) fail_at(key, fmt::format("is {}, expected text in quotes", describe(*node)));
  value = **node->as_string();
  if (value.empty()) fail_at(key, "is empty");
}

bool SectionReader::is_text(const std::string& key) const {
  return has(key) && table_->get(key)->is_string();
}

void SectionReader::boolean(const std::string& key, bool& value) {
  const toml::node* const node = take(key);
  if (node == nullptr) return;
  if (!node->is_boolean()) fail_at(key, fmt::format("is {}, expected true or false", describe(*node)));
  value = **node->as_boolean();
}

void SectionReader::choice(const std::string& key, const std::vector<std::string>& choices,
                           const std::vector<std::string>& not_yet, std::string& value) {
  text(key, value);
  if (!has(key) || std::ranges::count(choices, value)) return;
  if (std::ranges::count(not_yet, value)) {
    fail_at(key,
            fmt::format("= \"{}\" is not in this version, which has {}", value, fmt::join(choices, ", ")));
  }
  fail_at(key, fmt::format("is \"{}\", expected one of {}{}", value, fmt::join(choices, ", "),
                           did_you_mean(value, choices)));
}

void SectionReader::texts(const std::string& key, bool one_is_fine, std::vector<std::string>& value) {
  const toml::node* const node = take(key);
  if (node == nullptr) return;
  if (one_is_fine && node->is_string()) {
    value = {**node->as_string()};
    return;
  }
  const char* const expected =
      one_is_fine ? "a name in quotes, or a list of them" : "a list of names in quotes";
  if (!node->is_array()) fail_at(key, fmt::format("is {}, expected {}", describe(*node), expected));
  value.clear();
  for (const toml::node& entry : *node->as_array()) {
    if (!entry.is_string()) fail_at(key, fmt::format("holds {}, expected {}", describe(entry), expected));
    const std::string& name = **entry.as_string();
    if (std::ranges::count(value, name)) fail_at(key, fmt::format("names \"{}\" twice", name));
    value.push_back(name);
  }
  if (value.empty()) fail_at(key, "is an empty list");
}

void SectionReader::integer_or_auto(const std::string& key, int64_t least, int64_t most,
                                    std::optional<int64_t>& value) {
  const toml::node* const node = take(key);
  if (node == nullptr) return;
  if (node->is_string()) {
    if (**node->as_string() != "auto") {
      fail_at(key, fmt::format("is {}, expected a whole number or \"auto\"", describe(*node)));
    }
    value.reset();
    return;
  }
  integer(key, least, most, value);
}

const toml::table* SectionReader::table(const std::string& key, bool auto_is_fine) {
  const toml::node* const node = take(key);
  if (node == nullptr) return nullptr;
  if (auto_is_fine && node->is_string() && **node->as_string() == "auto") return nullptr;
  if (!node->is_table()) {
    fail_at(key, fmt::format("is {}, expected a table in braces{}", describe(*node),
                             auto_is_fine ? ", or \"auto\"" : ""));
  }
  return node->as_table();
}

void SectionReader::refuse(const std::string& key, const std::string& because) {
  if (take(key) != nullptr) fail_at(key, because);
}

void SectionReader::only_if(bool holds, const std::string& key, const std::string& because) const {
  if (!holds && has(key)) fail_at(key, because);
}

void SectionReader::finish() const {
  if (table_ == nullptr) return;
  for (const auto& [key, node] : *table_) {
    const std::string name(key.str());
    if (std::ranges::count(known_, name)) continue;
    const std::string full = name_.empty() ? name : name_ + "." + name;
    fail_usage("{}: unknown {} \"{}\"{}{}; there are: {}", source_.where(full, &node),
               name_.empty() ? "section" : "key", name, name_.empty() ? "" : fmt::format(" in [{}]", name_),
               did_you_mean(name, known_), fmt::join(known_, ", "));
  }
}

}  // namespace troika::internal
