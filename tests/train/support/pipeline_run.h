// Training runs on meshes, for tests.
#pragma once

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <map>

#include "support/temporary_folder.h"
#include "train/support/flock_recipe.h"
#include "troika/train/checkpoint.h"
#include "troika/train/trainer.h"

namespace troika {

/// Of any recipe.
class RecipeRun : public testing::Test {
 protected:
  Recipe on(const Mesh& mesh, const std::string& schedule = "") const {
    Recipe recipe = recipe_;
    recipe.parallel.ranks = mesh.ranks();
    recipe.parallel.mesh = mesh;
    if (!schedule.empty()) recipe.parallel.schedule = schedule;
    return recipe;
  }
  Recipe on(int data, int lanes, const std::string& schedule = "") const {
    return on(Mesh{data, lanes, 1}, schedule);
  }

  TrainReport run(const Recipe& recipe, const std::string& name, TrainOptions options = {}) const {
    options.run_dir = folder_ / name;
    options.quiet = true;
    return train(recipe, options);
  }

  /// By name; those of the run `expected` must be there too, with the same bits.
  void expect_same_weights(const std::string& name, const std::string& expected) const {
    const auto tensors = [&](const std::string& run) {
      std::map<std::string, at::Tensor> out;
      for (const NamedTensor& t : read_checkpoint(folder_ / run / "model.safetensors").tensors)
        out[t.name] = t.tensor;
      return out;
    };
    const auto ours = tensors(name), theirs = tensors(expected);
    EXPECT_EQ(ours.size(), theirs.size());
    for (const auto& [tensor, value] : theirs) {
      ASSERT_TRUE(ours.contains(tensor)) << tensor;
      EXPECT_TRUE(at::equal(ours.at(tensor), value)) << name << ": " << tensor;
    }
  }

  TemporaryFolder folder_;
  Recipe recipe_;
};

/// Of a small mlp.
class MeshRun : public RecipeRun {
 protected:
  explicit MeshRun(int64_t rows) {
    write_flock(folder_ / "data", rows);
    recipe_ = flock_recipe(folder_ / "data");
    recipe_.train.epochs.reset();
    recipe_.parallel.micro_batches = 4;
  }
};

class PipelineRun : public MeshRun {
 protected:
  PipelineRun() : MeshRun(600) {
    recipe_.model.layers = 5;
    recipe_.model.dropout = 0.2;
    recipe_.train.steps = 7;
    recipe_.train.checkpoint_every = 3;
  }
};

}  // namespace troika
