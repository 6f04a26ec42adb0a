#include "troika/train/weights_file.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "troika/base/error.h"
#include "troika/base/text.h"
#include "troika/train/checkpoint.h"
#include "troika/train/run_dir.h"

namespace troika {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWeights = "weights.";
constexpr std::string_view kOthers = "others.";
constexpr std::string_view kSteps = "optimizer_steps.";

using ByName = std::map<std::string, at::Tensor>;

std::string shape_of(const at::Tensor& tensor) {
  return fmt::format("({})", fmt::join(tensor.sizes(), ", "));
}

/// The file that a path means.
Path weights_of(const Path& path) {
  if (!fs::exists(path)) {
    fail("start_from: there is no {}; give a safetensors file or a run's directory", path.string());
  }
  if (!fs::is_directory(path)) return path;
  if (const Path found = judged_checkpoint(path); !found.empty()) return found;
  fail(
      "start_from: {} holds neither best.safetensors nor last.safetensors: it is no run's directory, or the "
      "run has not come to its first checkpoint",
      path.string());
}

/// torch.save's files are zip archives of pickles, or bare pickles. In a safetensors file the second half of
/// the first eight bytes, the header's length, is zero.
void refuse_pickle(const Path& path) {
  std::array<unsigned char, 8> head{};
  if (fs::file_size(path) < head.size()) return;
  read_exactly(open_to_read(path), std::as_writable_bytes(std::span(head)), 0, path);
  if (std::all_of(head.begin() + 4, head.end(), [](unsigned char byte) { return byte == 0; })) return;
  const bool zip = head[0] == 'P' && head[1] == 'K';
  const bool pickle = head[0] == 0x80 && head[1] >= 2 && head[1] <= 5;
  if (!zip && !pickle) return;
  fail(
      "{} was written by torch.save, which is not read here: a pickle can run any program. Write the weights "
      "with safetensors.torch.save_file(model.state_dict(), ...)",
      path.string());
}

/// What the file says of a model, without a checkpoint's prefixes and optimizer state.
ByName model_tensors(const std::vector<NamedTensor>& tensors) {
  const bool is_checkpoint =
      std::ranges::any_of(tensors, [](const NamedTensor& t) { return t.name.starts_with(kSteps); });
  ByName found;
  for (const NamedTensor& tensor : tensors) {
    if (!is_checkpoint) {
      found[tensor.name] = tensor.tensor;
    } else if (tensor.name.starts_with(kWeights)) {
      found[tensor.name.substr(kWeights.size())] = tensor.tensor;
    } else if (tensor.name.starts_with(kOthers)) {
      found[tensor.name.substr(kOthers.size())] = tensor.tensor;
    }
  }
  return found;
}

bool belongs_to(const std::string& name, const std::string& layer) {
  return name == layer || (name.starts_with(layer) && name[layer.size()] == '.');
}

bool belongs_to_any(const std::string& name, const std::vector<std::string>& layers) {
  return std::ranges::any_of(layers, [&](const std::string& layer) { return belongs_to(name, layer); });
}

void require_layers(const std::vector<std::string>& layers, const std::vector<NamedTensor>& wanted) {
  std::vector<std::string> known;
  for (const NamedTensor& want : wanted) {
    const std::string layer = want.name.substr(0, want.name.find('.'));
    if (!std::ranges::count(known, layer)) known.push_back(layer);
  }
  for (const std::string& layer : layers) {
    if (std::ranges::any_of(wanted, [&](const NamedTensor& t) { return belongs_to(t.name, layer); }))
      continue;
    fail_usage("start_fresh: the model has no layer \"{}\"{}; its layers are {}", layer,
               did_you_mean(layer, known), fmt::join(known, ", "));
  }
}

/// Why `got` can't become `want`, or "".
std::string misfit(const NamedTensor& want, const at::Tensor& got) {
  if (got.sizes() != want.tensor.sizes()) {
    return fmt::format("{} has shape {}, the model's is {}", want.name, shape_of(got), shape_of(want.tensor));
  }
  if (got.is_floating_point() != want.tensor.is_floating_point()) {
    return fmt::format("{} holds {}, the model's are {}", want.name,
                       got.is_floating_point() ? "fractions" : "whole numbers",
                       got.is_floating_point() ? "whole numbers" : "fractions");
  }
  // A number may be too large once it is converted.
  if (!at::isfinite(got.to(want.tensor.scalar_type())).all().item<bool>()) {
    return fmt::format("{} holds a number that is not finite", want.name);
  }
  return "";
}

std::string first_of(const std::vector<std::string>& wrong) {
  constexpr size_t kMost = 12;
  const size_t shown = std::min(wrong.size(), kMost);
  std::string text =
      fmt::format("{}", fmt::join(wrong.begin(), wrong.begin() + static_cast<long>(shown), "; "));
  if (wrong.size() > shown) text += fmt::format("; and {} more", wrong.size() - shown);
  return text;
}

}  // namespace

void write_weights(const Path& path, const std::vector<NamedTensor>& parameters,
                   const std::vector<NamedTensor>& others,
                   const std::map<std::string, std::string>& metadata) {
  Checkpoint file;
  file.metadata = metadata;
  file.metadata.emplace("format", "pt");
  for (const std::vector<NamedTensor>* list : {&parameters, &others}) {
    for (const NamedTensor& named : *list) file.tensors.push_back({named.name, named.tensor.detach()});
  }
  std::ranges::stable_sort(file.tensors, std::greater{},
                           [](const NamedTensor& named) { return named.tensor.element_size(); });
  write_checkpoint(path, file);
}

void start_from(const Path& file, const std::vector<std::string>& fresh_layers,
                const std::vector<NamedTensor>& parameters, const std::vector<NamedTensor>& others) {
  std::vector<NamedTensor> wanted = parameters;
  wanted.insert(wanted.end(), others.begin(), others.end());
  require_layers(fresh_layers, wanted);
  std::erase_if(wanted, [&](const NamedTensor& want) { return belongs_to_any(want.name, fresh_layers); });

  const Path path = weights_of(file);
  refuse_pickle(path);
  ByName found = model_tensors(read_checkpoint(path).tensors);
  std::erase_if(found, [&](const auto& item) { return belongs_to_any(item.first, fresh_layers); });

  const at::NoGradGuard no_grad;
  std::vector<std::string> wrong;
  std::vector<std::string> missing;
  for (const NamedTensor& want : wanted) {
    const auto got = found.find(want.name);
    if (got == found.end()) {
      missing.push_back(want.name);
      wrong.push_back(fmt::format("missing: {} {}", want.name, shape_of(want.tensor)));
    } else if (const std::string reason = misfit(want, got->second); !reason.empty()) {
      wrong.push_back(reason);
    }
  }
  for (const auto& [name, tensor] : found) {
    if (std::ranges::any_of(wanted, [&](const NamedTensor& want) { return want.name == name; })) continue;
    wrong.push_back(fmt::format("unexpected: {} {}{}", printable(name, 80), shape_of(tensor),
                                did_you_mean(name, missing)));
  }
  if (!wrong.empty()) {
    fail(
        "{} does not fit this model ({} difference{}): {}. Give the file of a model of the same layers, or "
        "name "
        "the layers that differ in start_fresh",
        path.string(), wrong.size(), wrong.size() == 1 ? "" : "s", first_of(wrong));
  }
  for (const NamedTensor& want : wanted) want.tensor.detach().copy_(found.at(want.name));
}

StateWeights weights_of_state(const std::vector<NamedTensor>& state) {
  StateWeights weights;
  for (const NamedTensor& part : state) {
    if (part.name.starts_with(kWeights)) {
      weights.parameters.push_back({part.name.substr(kWeights.size()), part.tensor});
    } else if (part.name.starts_with(kOthers)) {
      weights.others.push_back({part.name.substr(kOthers.size()), part.tensor});
    }
  }
  return weights;
}

void start_state_from(const Path& file, const std::vector<std::string>& fresh_layers,
                      const std::vector<NamedTensor>& state) {
  const StateWeights weights = weights_of_state(state);
  start_from(file, fresh_layers, weights.parameters, weights.others);
}

}  // namespace troika
