// A small text as a dataset, and the recipe of a gpt on it, for tests of training.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "troika/base/random.h"
#include "troika/data/pack_text.h"
#include "troika/train/recipe.h"

namespace troika {

/// Words of a small vocabulary in a drawn order: something to learn within a word, and something not.
inline std::string some_text(int64_t bytes, uint64_t seed = 1) {
  static const std::vector<std::string> words = {"one ",   "pipeline ", "of ",
                                                 "four\n", "stages ",   "\xC3\xA4 "};
  std::string text;
  for (uint64_t i = 0; static_cast<int64_t>(text.size()) < bytes; ++i)
    text += words[static_cast<size_t>(uniform(seed, i) * static_cast<double>(words.size()))];
  text.resize(static_cast<size_t>(bytes));
  return text;
}

inline Dataset pack_texts(const Path& folder, const std::vector<std::string>& texts) {
  PackOptions options;
  options.output = folder / "text";
  options.shard_bytes = 1 << 12;  // so that windows cross shards
  for (const std::string& text : texts) {
    options.files.push_back(folder / fmt::format("{}.txt", options.files.size()));
    std::ofstream(options.files.back(), std::ios::binary) << text;
  }
  return pack_text(options, [](const PackProgress&) {}).dataset;
}

/// As it is parsed, on the dataset that pack_texts made.
inline Recipe text_recipe(const Path& folder) {
  Recipe recipe;
  recipe.data.path = folder / "text";
  recipe.data.targets = {"byte"};
  recipe.data.window = recipe.data.stride = 8;
  recipe.data.split.by = "order";
  recipe.model.type = "gpt";
  recipe.model.width = 16;
  recipe.model.heads = 2;
  recipe.model.dropout = 0.2;
  recipe.train.steps = 7;
  recipe.train.batch = 18;
  recipe.train.learning_rate = 0.01;
  recipe.train.clip_norm = 0.5;
  recipe.train.log_every = 1;
  recipe.train.checkpoint_every = 3;
  recipe.parallel.ranks = 1;
  recipe.parallel.threads_per_rank = 1;
  recipe.parallel.micro_batches = 4;
  return recipe;
}

}  // namespace troika
