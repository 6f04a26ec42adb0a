// The four sections of a recipe, read key by key. Internal to recipe parsing; pure functions.
#pragma once

#include "troika/train/recipe.h"
#include "troika/train/recipe_reader.h"

namespace troika::internal {

constexpr int64_t kMostRanks = 1024;

/// `folder` is the recipe's: relative paths start there.
/// `text`: the model reads text, whose target and order are known.
DataRecipe read_data(const RecipeSource& source, const Path& folder, bool text);
ModelRecipe read_model(const RecipeSource& source);
TrainRecipe read_train(const RecipeSource& source, const Path& folder);
ParallelRecipe read_parallel(const RecipeSource& source, const Path& folder);

/// What one section's keys need of another's: an lstm needs windows, and so on.
void check_together(const RecipeSource& source, const Recipe& recipe);

/// Whether a built-in model reads the text of `troika pack --text`, and nothing else.
bool reads_text(const std::string& model_type);

/// Whether a built-in model has a BatchNorm.
bool has_batch_norm(const std::string& model_type);

}  // namespace troika::internal
