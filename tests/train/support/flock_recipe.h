// The recipe that tests of training begin with: a small mlp on write_flock's rows.
#pragma once

#include "train/support/flock.h"
#include "troika/train/recipe.h"

namespace troika {

/// On the dataset in `data`, one rank with one thread, every step logged.
inline Recipe flock_recipe(const Path& data) {
  Recipe recipe;
  recipe.data.path = data;
  recipe.data.targets = {"y"};
  recipe.data.features = {"x", "count", "kind"};
  recipe.model.width = 16;
  recipe.train.epochs = 2;
  recipe.train.batch = 64;
  recipe.train.learning_rate = 0.01;
  recipe.train.log_every = 1;
  recipe.parallel.ranks = 1;
  recipe.parallel.threads_per_rank = 1;
  return recipe;
}

}  // namespace troika
