#include "troika/train/weights_file.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include "support/error_of.h"
#include "support/temporary_folder.h"
#include "train/support/series_models.h"
#include "troika/base/error.h"
#include "troika/train/checkpoint.h"
#include "troika/train/safetensors.h"

namespace troika::test {
namespace {

const Kind kCnn{"cnn", 5};  // has buffers beside parameters, one of them whole numbers

std::vector<NamedTensor> tensors_of(const Model& model) {
  std::vector<NamedTensor> all = model.parameters();
  all.insert(all.end(), model.others().begin(), model.others().end());
  return all;
}

std::vector<NamedTensor> copies_of(const std::vector<NamedTensor>& tensors) {
  std::vector<NamedTensor> copies;
  for (const NamedTensor& named : tensors) copies.push_back({named.name, named.tensor.detach().clone()});
  return copies;
}

bool same(const std::vector<NamedTensor>& x, const std::vector<NamedTensor>& y) {
  bool equal = x.size() == y.size();
  for (size_t i = 0; equal && i < x.size(); ++i) equal = at::equal(x[i].tensor, y[i].tensor);
  return equal;
}

class WeightsFile : public testing::Test {
 protected:
  /// Another model of the same layers, with other numbers.
  static Model other(const ModelRecipe& recipe = small_recipe(kCnn), at::ScalarType dtype = at::kFloat) {
    return Model(make_model(recipe, small_shape(kCnn)), 77, dtype);
  }

  /// What start_from says to a model of `recipe`; the model stays as it is.
  std::string error(const Path& file, const std::vector<std::string>& fresh = {},
                    const ModelRecipe& recipe = small_recipe(kCnn)) {
    const Model model = other(recipe);
    const auto before = copies_of(tensors_of(model));
    std::string what = error_of([&] { start_from(file, fresh, model.parameters(), model.others()); });
    EXPECT_TRUE(what == "no error" || same(before, tensors_of(model))) << "a weight was changed";
    const std::string folder = folder_.path().string();
    if (const size_t at = what.find(folder + "/"); at != std::string::npos) what.erase(at, folder.size() + 1);
    if (const size_t at = what.find(folder); at != std::string::npos)
      what.replace(at, folder.size(), "the folder");
    return what;
  }

  Path write(const std::vector<NamedTensor>& tensors, const std::string& name = "w.safetensors") {
    write_weights(folder_ / name, tensors, {}, {});
    return folder_ / name;
  }

  TemporaryFolder folder_;
  Model model_ = small_model(kCnn);
};

TEST_F(WeightsFile, HoldsTheModelsNamesAndNothingElse) {
  write_weights(folder_ / "w.safetensors", model_.parameters(), model_.others(), {{"note", "a"}});
  const Checkpoint file = read_checkpoint(folder_ / "w.safetensors");
  EXPECT_EQ(file.metadata, (std::map<std::string, std::string>{{"format", "pt"}, {"note", "a"}}));
  const auto all = tensors_of(model_);
  ASSERT_EQ(file.tensors.size(), all.size());
  for (const NamedTensor& named : all) {
    const auto found =
        std::ranges::find_if(file.tensors, [&](const auto& t) { return t.name == named.name; });
    ASSERT_NE(found, file.tensors.end()) << named.name;
    EXPECT_EQ(found->tensor.scalar_type(), named.tensor.scalar_type());
    EXPECT_TRUE(at::equal(found->tensor, named.tensor)) << named.name;
  }
}

// Readers that map the file may not take an 8-byte number from an address that is no multiple of 8.
TEST_F(WeightsFile, EveryTensorIsAligned) {
  const Path path = write({{"half", at::full({3}, 1, at::kBFloat16)},
                           {"one", at::full({1}, 2, at::kFloat)},
                           {"count", at::full({}, 3, at::kLong)},
                           {"double", at::full({5}, 4, at::kDouble)}});
  const FileHandle file = open_to_read(path);
  const StoredHeader header = read_header(file, std::filesystem::file_size(path), path);
  EXPECT_EQ(header.bytes.size() % 8, 0U);
  ASSERT_EQ(header.tensors.size(), 4U);
  for (const StoredTensor& tensor : header.tensors) {
    EXPECT_EQ(tensor.begin % static_cast<uint64_t>(size_of(tensor.type)), 0U) << tensor.name;
  }
}

TEST_F(WeightsFile, StartsAModelOfAnyPrecision) {
  for (const at::ScalarType stored : {at::kDouble, at::kFloat, at::kBFloat16}) {
    std::vector<NamedTensor> tensors = copies_of(tensors_of(model_));
    for (NamedTensor& named : tensors) {
      if (named.tensor.is_floating_point()) named.tensor = named.tensor.to(stored);
      if (named.name == "conv1.norm.num_batches_tracked") named.tensor.fill_(7);
    }
    const Path path = write(tensors);
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      const Model model = other(small_recipe(kCnn), dtype);
      const auto places = copies_of(tensors_of(model));
      start_from(path, {}, model.parameters(), model.others());
      const auto now = tensors_of(model);
      for (size_t i = 0; i < now.size(); ++i) {
        EXPECT_EQ(now[i].tensor.scalar_type(), places[i].tensor.scalar_type());
        EXPECT_TRUE(at::equal(now[i].tensor, tensors[i].tensor.to(now[i].tensor.scalar_type())))
            << now[i].name;
      }
    }
  }
}

TEST_F(WeightsFile, ACheckpointOrARunsFolderWillDoToo) {
  const auto checkpoint = [&](double value, const std::string& name) {
    std::vector<NamedTensor> state;
    for (const NamedTensor& p : model_.parameters()) {
      state.push_back({"weights." + p.name, at::full_like(p.tensor, value)});
      state.push_back({"exp_avg." + p.name, at::full_like(p.tensor, -1)});
      state.push_back({"optimizer_steps." + p.name, at::full({}, 5, at::kLong)});
    }
    for (const NamedTensor& o : model_.others())
      state.push_back({"others." + o.name, at::full_like(o.tensor, 9)});
    write_checkpoint(folder_ / name, {state, {{"troika", "{}"}}});
  };
  const auto starts_with = [&](const Path& path) {
    const Model model = other();
    start_from(path, {}, model.parameters(), model.others());
    EXPECT_EQ(model.others().front().tensor.flatten()[0].item<double>(), 9);
    return model.parameters().back().tensor.flatten()[0].item<double>();
  };
  EXPECT_EQ(error(folder_.path()),
            "start_from: the folder holds neither best.safetensors nor last.safetensors: it is no run's "
            "directory, or the run has not come to its first checkpoint");
  checkpoint(1, "last.safetensors");
  EXPECT_EQ(starts_with(folder_ / "last.safetensors"), 1);
  EXPECT_EQ(starts_with(folder_.path()), 1);
  checkpoint(2, "best.safetensors");
  EXPECT_EQ(starts_with(folder_.path()), 2);
}

TEST_F(WeightsFile, FreshLayersKeepTheirNumbers) {
  const Path path = write(tensors_of(model_));
  ModelRecipe recipe = small_recipe(kCnn);
  ModelShape shape = small_shape(kCnn);
  shape.outputs = 5;  // another head, as for another target
  const Model model(make_model(recipe, shape), 77);
  const auto before = copies_of(model.parameters());
  start_from(path, {"head", "conv2.norm"}, model.parameters(), model.others());
  for (size_t i = 0; i < before.size(); ++i) {
    const auto& [name, tensor] = model.parameters()[i];
    const bool fresh = name.starts_with("head.") || name.starts_with("conv2.norm.");
    EXPECT_EQ(at::equal(tensor, before[i].tensor), fresh) << name;
  }
  // The file need not have them at all.
  std::vector<NamedTensor> without = tensors_of(model_);
  std::erase_if(without, [](const NamedTensor& t) { return t.name.starts_with("head."); });
  write(without);
  EXPECT_EQ(error(path, {"head"}), "no error");
  EXPECT_EQ(error(path, {"hea"}),
            "start_fresh: the model has no layer \"hea\" (did you mean \"head\"?); its layers are embed, "
            "conv1, conv2, "
            "head");
}

TEST_F(WeightsFile, EveryDifferenceIsNamed) {
  std::vector<NamedTensor> tensors = tensors_of(model_);
  for (NamedTensor& named : tensors) {
    if (named.name == "head.weight") named.name = "haed.weight";
    if (named.name == "head.bias") named.tensor = at::full({3}, 1.0);
    if (named.name == "conv1.norm.num_batches_tracked") named.tensor = at::full({}, 1.0);
    if (named.name == "conv2.norm.bias") {
      named.tensor = at::full({6}, std::numeric_limits<double>::max(), at::kDouble);  // infinite in float32
    }
  }
  tensors.push_back({"extra", at::full({2, 2}, 1.0)});
  EXPECT_EQ(
      error(write(tensors)),
      "w.safetensors does not fit this model (6 differences): conv2.norm.bias holds a number that is not "
      "finite; missing: head.weight (2, 6); head.bias has shape (3), the model's is (2); "
      "conv1.norm.num_batches_tracked holds fractions, the model's are whole numbers; unexpected: extra (2, "
      "2); "
      "unexpected: haed.weight (2, 6) (did you mean \"head.weight\"?). Give the file of a model of the same "
      "layers, or name the layers that differ in start_fresh");
  const std::string many = error(write({{"x", at::full({1}, 1.0)}}));
  EXPECT_NE(many.find("(17 differences)"), std::string::npos) << many;
  EXPECT_NE(many.find("; and 5 more. Give"), std::string::npos) << many;
}

TEST_F(WeightsFile, WhatIsNoSuchFileIsSaid) {
  EXPECT_EQ(error(folder_ / "none"),
            "start_from: there is no none; give a safetensors file or a run's directory");
  const auto holding = [&](const std::string& bytes) {
    std::ofstream(folder_ / "f", std::ios::binary) << bytes;
    return error(folder_ / "f");
  };
  const std::string pickle =
      "f was written by torch.save, which is not read here: a pickle can run any program. Write the weights "
      "with "
      "safetensors.torch.save_file(model.state_dict(), ...)";
  EXPECT_EQ(holding(std::string("PK\3\4\0\0\x08\x08\0\0", 10)), pickle);
  EXPECT_EQ(holding("\x80\x02\x8a\x0a"
                    "l\xfc\x9c"
                    "F\xf9 j"),
            pickle);
  // The same first bytes as a header's length: 0x0280 = 640.
  EXPECT_NE(holding(std::string("\x80\x02\0\0\0\0\0\0{}", 10)).find("a header of 640 bytes"),
            std::string::npos);
  EXPECT_NE(holding("").find("has 0 bytes"), std::string::npos);
  EXPECT_NE(holding("{}").find("has 2 bytes"), std::string::npos);
  const Path path = write(tensors_of(model_));
  std::string bytes = read_text(path);
  bytes[bytes.size() - 3] = static_cast<char>(bytes[bytes.size() - 3] ^ 1);
  std::ofstream(path, std::ios::binary) << bytes;
  EXPECT_NE(error(path).find("is damaged"), std::string::npos);
}

TEST_F(WeightsFile, AReplicasStateIsStarted) {
  const Path path = write(tensors_of(model_));
  const Model model = other();
  std::vector<NamedTensor> state;
  for (const NamedTensor& p : model.parameters()) {
    state.push_back({"weights." + p.name, p.tensor.detach().clone()});
    state.push_back({"exp_avg." + p.name, at::full_like(p.tensor, 4)});
    state.push_back({"optimizer_steps." + p.name, at::full({}, 0, at::kLong)});
  }
  for (const NamedTensor& o : model.others())
    state.push_back({"others." + o.name, o.tensor.detach().clone()});
  start_state_from(path, {"head"}, state);
  const auto wanted = tensors_of(model_);
  for (const NamedTensor& part : state) {
    const std::string name = part.name.substr(part.name.find('.') + 1);
    const auto of_file = std::ranges::find_if(wanted, [&](const auto& t) { return t.name == name; });
    if (part.name.starts_with("exp_avg.")) {
      EXPECT_EQ(part.tensor.flatten()[0].item<double>(), 4);
    }
    if (!part.name.starts_with("weights.") && !part.name.starts_with("others.")) continue;
    const bool equal = at::equal(part.tensor, of_file->tensor.detach().to(part.tensor.scalar_type()));
    EXPECT_EQ(equal, !name.starts_with("head.")) << part.name;
  }
}

}  // namespace
}  // namespace troika::test
