#include "troika/train/models/registry.h"

#include "troika/base/error.h"
#include "troika/base/text.h"
#include "troika/train/models/mlp.h"

namespace troika {
namespace {

struct Entry {
  const char* type;
  std::vector<Layer> (*make)(const ModelRecipe&, const ModelShape&);
};

constexpr Entry kModels[] = {
    {"mlp", make_mlp},
};

}  // namespace

std::vector<Layer> make_model(const ModelRecipe& recipe, const ModelShape& shape) {
  std::vector<std::string> names;
  for (const Entry& entry : kModels) {
    if (recipe.type == entry.type) return entry.make(recipe, shape);
    names.emplace_back(entry.type);
  }
  fail_usage("model.type \"{}\" is not known{}", recipe.type, did_you_mean(recipe.type, names));
}

}  // namespace troika
