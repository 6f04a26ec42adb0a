#include "troika/train/models/registry.h"

#include "troika/base/error.h"
#include "troika/base/text.h"
#include "troika/train/models/cnn.h"
#include "troika/train/models/gpt.h"
#include "troika/train/models/mlp.h"
#include "troika/train/models/recurrent.h"
#include "troika/train/models/tcn.h"
#include "troika/train/models/transformer.h"

namespace troika {
namespace {

enum class Needs { nothing, window };

struct Entry {
  const char* type;
  std::vector<Layer> (*make)(const ModelRecipe&, const ModelShape&);
  Needs needs = Needs::nothing;
};

constexpr Entry kModels[] = {
    {"mlp", make_mlp},
    {"lstm", make_lstm, Needs::window},
    {"gru", make_gru, Needs::window},
    {"tcn", make_tcn, Needs::window},
    {"transformer", make_transformer},
    {"cnn", make_cnn, Needs::window},
    {"gpt", make_gpt, Needs::window},
};

void check(const Entry& entry, const ModelRecipe& recipe, const ModelShape& shape) {
  if (recipe.width < 1) fail_usage("model.width = {}, expected at least 1", recipe.width);
  if (shape.floats < 1 && shape.category_values.empty()) {
    fail_usage("model.type \"{}\": the data gives it no input; name columns in data.features", entry.type);
  }
  if (entry.needs != Needs::window) return;
  if (shape.window < 1) {
    fail_usage(
        "model.type \"{}\" reads windows of a series: set data.window to the rows that a sample has, and "
        "data.time or data.series to what orders them; a table is for \"mlp\" and \"transformer\"",
        entry.type);
  }
  if (recipe.layers < 1) {
    fail_usage("model.type \"{}\" has at least 1 layer, and model.layers is {} (\"mlp\" may have none)",
               entry.type, recipe.layers);
  }
}

}  // namespace

std::vector<Layer> make_model(const ModelRecipe& recipe, const ModelShape& shape) {
  std::vector<std::string> names;
  for (const Entry& entry : kModels) {
    if (recipe.type == entry.type) {
      check(entry, recipe, shape);
      return entry.make(recipe, shape);
    }
    names.emplace_back(entry.type);
  }
  fail_usage("model.type \"{}\" is not known{}", recipe.type, did_you_mean(recipe.type, names));
}

}  // namespace troika
