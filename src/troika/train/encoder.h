// From rows of a dataset to what a model eats: which columns, how each is encoded, and the target. The plan
// is a value that is kept with the weights, because the weights mean nothing without it. No torch. Threading:
// values and pure functions; thread-safe as such.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "troika/data/dataset.h"
#include "troika/data/source.h"
#include "troika/data/windows.h"
#include "troika/train/recipe.h"

namespace troika {

/// How one float input is made from a column's value x; null gives 0 in all of them but `mask`.
enum class Encoding {
  standardised,  // float((double(x) - mean) * (1 / deviation)), over the training rows; timestamps in
                 // seconds, but not for the column that a split by time or windows go by
  boolean,       // 0 or 1
  mask,          // 1 where the column is null; only for columns that have nulls somewhere in the dataset
  sin_day,       // of the time of day (UTC), for timestamps
  cos_day,
  sin_year,  // of the time of the year (365.2425 days)
  cos_year
};
const char* name_of(Encoding encoding);

struct FloatInput {
  std::string column;
  Encoding encoding = Encoding::standardised;
  Storage storage = Storage::floats;
  int index = 0;  // within the row's floats or ints
  bool timestamp = false;
  double mean = 0, deviation = 1;  // standardised only; of seconds for timestamps
  bool operator==(const FloatInput&) const = default;
};

/// A category as a whole number: 0 for null and for categories beyond `values`, else code + 1.
struct CategoryInput {
  std::string column;
  int index = 0;
  int64_t values = 0;                   // number of categories + 1
  std::vector<std::string> dictionary;  // code -> text
  bool operator==(const CategoryInput&) const = default;
};

enum class TargetKind {
  number,
  binary,
  classes,
  tokens  // of a text: the class of the row after each row of the window
};

struct TargetColumn {
  std::string column;
  Storage storage = Storage::floats;
  int index = 0;  // -1: the dataset doesn't have it (bind_features)
  double mean = 0,
         deviation = 1;  // of the training rows; numbers only. The model predicts (y - mean) / deviation
  std::vector<std::string> classes;  // code -> text; empty for numbers
  bool operator==(const TargetColumn&) const = default;
};

struct FeaturePlan {
  std::vector<FloatInput> floats;  // masks stand after all others
  std::vector<CategoryInput> categories;
  WindowOptions windows;  // not any(): a row is a sample
  TargetKind kind = TargetKind::number;
  std::vector<TargetColumn> targets;  // one, or several numbers
  std::vector<std::string>
      left_out;  // columns that hold no value in any row, dropped because nobody asked for them
  bool operator==(const FeaturePlan&) const = default;

  /// Rows of a sample whose targets are predicted, and the first of them.
  int64_t answers() const { return kind == TargetKind::tokens ? windows.window : windows.steps_ahead(); }
  int64_t first_answer() const { return kind == TargetKind::tokens ? 1 : windows.first_step_ahead(); }
  /// Width of the target array: all targets of the first step ahead, then of the second, ... for numbers; the
  /// window for tokens; 1 otherwise.
  int64_t target_width() const { return static_cast<int64_t>(targets.size()) * answers(); }
  /// What metrics count, and what a loss is the mean over: samples, or their tokens.
  int64_t counted(int64_t samples) const {
    return kind == TargetKind::tokens ? samples * answers() : samples;
  }
};

/// The recipe's windows; not any() without data.window.
WindowOptions windows_of(const DataRecipe& recipe);

/// Chooses encodings and measures mean and deviation in one pass over `training_rows`: with windows, all rows
/// of the training ones (covered_rows). Inputs by default: every column but the targets, the weights and the
/// time column. With windows, the targets' past too if they are predicted ahead, the time column's sines and
/// cosines, and of the series columns the categories, if series aren't kept apart by the split.
/// The target of a text (text_data.h) is its next bytes. Throws UsageError naming the column for a feature or
/// target that isn't there or can't be used.
FeaturePlan plan_features(const Dataset& dataset, const DataRecipe& recipe, const RowSet& training_rows);

/// Samples in `rows`, of `span` rows each; 0: plan.windows.span().
int64_t samples_in(const FeaturePlan& plan, const RowBuffer& rows, int64_t span = 0);

/// Writes the rows that the model sees as row-major arrays: floats [rows, plan.floats], categories [rows,
/// plan.categories]; with windows [samples, window, ...]. Looks at no target. A sample is `span` rows of the
/// buffer, the window first; 0: plan.windows.span().
void encode_inputs(const FeaturePlan& plan, const Dataset& dataset, const RowBuffer& rows, float* floats,
                   int64_t* categories, int64_t span = 0);

/// Standardised targets [samples, target_width] for numbers, 0/1 [samples] for binary. Not for `classes`.
void encode_targets(const FeaturePlan& plan, const Dataset& dataset, const RowBuffer& rows, float* targets);

/// Class numbers [samples, target_width], for all kinds but numbers.
void encode_classes(const FeaturePlan& plan, const Dataset& dataset, const RowBuffer& rows, int64_t* classes);

/// Targets in their own unit [samples, target_width], all of the first step ahead first; class numbers for
/// the other kinds.
void raw_targets(const FeaturePlan& plan, const Dataset& dataset, const RowBuffer& rows, double* targets);

/// As JSON, for the run directory and the checkpoint; the same plan gives the same text.
std::string to_json(const FeaturePlan& plan);

/// to_json's inverse, but for where the columns are in a dataset: bind_features finds them. Throws Error.
FeaturePlan feature_plan_from_json(const std::string& text);

/// feature_plan_from_json of a file; Error names it.
FeaturePlan read_features(const Path& path);

/// Points `plan` at the columns of another dataset, by name. Throws UsageError naming the first column that
/// is missing, of another type, or whose categories have other numbers than those trained with. Categories
/// that are new, at the dictionary's end, are as good as null. Targets may be missing (index -1), but what is
/// there must fit.
void bind_features(FeaturePlan& plan, const Dataset& dataset);

}  // namespace troika
