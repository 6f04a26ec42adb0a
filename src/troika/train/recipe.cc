#include "troika/train/recipe.h"

#include "troika/schedule/catalogue.h"
#include "troika/schedule/schedule_file.h"
#include "troika/train/recipe_sections.h"

namespace troika {
namespace {

using internal::kMostRanks;
using internal::RecipeSource;
using internal::SectionReader;

void check_mesh(const ParallelRecipe& parallel) {
  if (parallel.mesh && parallel.ranks) require_ranks(*parallel.mesh, static_cast<int>(*parallel.ranks));
  if (parallel.splits.empty() || (parallel.mesh && parallel.mesh->tensor > 1)) return;
  fail_usage(
      "parallel.splits means nothing without tensor ranks: set the mesh, --mesh tensor=2, or leave it out");
}

}  // namespace

Recipe parse_recipe(const Path& path, const std::vector<std::string>& settings) {
  RecipeSource source(path, settings);
  // "--set train.steps=5" is meant to replace the file's epochs, not to contradict it.
  if (source.from_settings("train.steps") != source.from_settings("train.epochs")) {
    source.erase("train", source.from_settings("train.steps") ? "epochs" : "steps");
  }
  SectionReader in(source, &source.root(), "");
  for (const char* section : {"data", "model", "train", "parallel"}) in.table(section, false);
  in.finish();
  Recipe recipe;
  recipe.model = internal::read_model(source);
  recipe.data = internal::read_data(source, path.parent_path(), internal::reads_text(recipe.model.type));
  recipe.train = internal::read_train(source, path.parent_path());
  recipe.parallel = internal::read_parallel(source, path.parent_path());
  internal::check_together(source, recipe);
  return recipe;
}

Recipe load_recipe(const RecipeRequest& request) {
  Recipe recipe = parse_recipe(request.recipe, request.settings);
  ParallelRecipe& parallel = recipe.parallel;
  if (request.ranks) {
    if (*request.ranks < 1 || *request.ranks > kMostRanks) {
      fail_usage("--ranks {}: expected 1 to {}", *request.ranks, kMostRanks);
    }
    parallel.ranks = *request.ranks;
    parallel.mesh.reset();
  }
  if (request.mesh) {
    parallel.mesh.reset();
    if (*request.mesh != "auto") parallel.mesh = parse_mesh(*request.mesh);  // auto: what the ranks say
    if (!request.ranks && parallel.mesh) parallel.ranks.reset();
  }
  if (request.micro_batches) {
    if (*request.micro_batches < 1)
      fail_usage("--micro-batches {}: expected at least 1", *request.micro_batches);
    parallel.micro_batches = *request.micro_batches;
  }
  if (request.weights) {
    if (*request.weights != "shared" && *request.weights != "replicated") {
      fail_usage("--weights {}: expected shared or replicated", *request.weights);
    }
    parallel.weights = *request.weights;
  }
  if (request.schedule) {
    const std::string& name = *request.schedule;
    parallel.schedule = is_schedule_file(name) ? std::filesystem::absolute(name).lexically_normal().string()
                                               : std::string(catalogue_entry(name).name);
  }
  if (request.deadline) parallel.deadline = *request.deadline;
  check_mesh(parallel);
  return recipe;
}

Optimizer optimizer_of(const TrainRecipe& recipe) {
  Optimizer optimizer;
  optimizer.kind = recipe.optimizer == "sgd"    ? Optimizer::Kind::sgd
                   : recipe.optimizer == "adam" ? Optimizer::Kind::adam
                                                : Optimizer::Kind::adamw;
  optimizer.learning_rate = recipe.learning_rate;
  optimizer.weight_decay = recipe.weight_decay;
  return optimizer;
}

Path default_run_dir(const Path& recipe) {
  const Path absolute = std::filesystem::absolute(recipe).lexically_normal();
  const std::string name = absolute.filename() == "recipe.toml" ? absolute.parent_path().filename().string()
                                                                : absolute.stem().string();
  return Path("runs") / (name.empty() ? "run" : name);
}

}  // namespace troika
