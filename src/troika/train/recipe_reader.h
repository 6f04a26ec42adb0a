// Takes keys out of a parsed TOML file one by one, so that whatever is left at the end is known to be
// unknown. Internal to recipe parsing; belongs to one thread.
#pragma once

#include <toml++/toml.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "troika/base/error.h"
#include "troika/base/file.h"

namespace troika::internal {

/// A recipe file with --set applied, and where every key comes from.
class RecipeSource {
 public:
  RecipeSource(const Path& path, const std::vector<std::string>& settings);
  const toml::table& root() const { return root_; }
  bool from_settings(const std::string& key) const { return settings_.contains(key); }
  void erase(const std::string& section, const std::string& key);

  /// "recipe.toml:12" or "--set train.steps=x".
  std::string where(const std::string& key, const toml::node* node) const;

 private:
  void apply(const std::string& setting);

  std::string file_;
  toml::table root_;
  std::map<std::string, std::string> settings_;  // dotted key -> the setting's text
};

/// The keys of one table: [section], or an inline table within one.
class SectionReader {
 public:
  /// `table` may be null: then no key is there.
  SectionReader(const RecipeSource& source, const toml::table* table, std::string name);

  bool has(const std::string& key) const { return table_ != nullptr && table_->contains(key); }
  bool is_list(const std::string& key) const { return has(key) && table_->get(key)->is_array(); }
  /// Rather than a number, a list, a table.
  bool is_text(const std::string& key) const;
  void integer(const std::string& key, int64_t least, int64_t most, int64_t& value);
  void integer(const std::string& key, int64_t least, int64_t most, std::optional<int64_t>& value);
  /// An integer is fine where a number is wanted.
  void number(const std::string& key, double least, double most, double& value);
  void text(const std::string& key, std::string& value);
  void boolean(const std::string& key, bool& value);
  void choice(const std::string& key, const std::vector<std::string>& choices,
              const std::vector<std::string>& not_yet, std::string& value);
  void texts(const std::string& key, bool one_is_fine, std::vector<std::string>& value);
  /// As integer, but "auto" gives an empty optional.
  void integer_or_auto(const std::string& key, int64_t least, int64_t most, std::optional<int64_t>& value);
  /// A table within this one; null if it isn't there, or if it is the text "auto".
  const toml::table* table(const std::string& key, bool auto_is_fine);
  /// A key that exists in the language of recipes but can't be used here; `because` says why.
  void refuse(const std::string& key, const std::string& because);
  /// A key that means nothing unless `holds`; `because` says what it would need.
  void only_if(bool holds, const std::string& key, const std::string& because) const;
  /// Whatever has not been asked for is unknown.
  void finish() const;

  /// Throws UsageError "<where>: <section.key> <text>".
  [[noreturn]] void fail_at(const std::string& key, const std::string& text) const;

 private:
  const toml::node* take(const std::string& key);

  const RecipeSource& source_;
  const toml::table* table_;
  std::string name_;
  std::vector<std::string> known_;
};

}  // namespace troika::internal
