#include "troika/train/training_state.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "troika/base/error.h"
#include "troika/base/random.h"
#include "troika/base/text.h"

namespace troika {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* kKey = "troika";
constexpr int kFormat = 1;

std::string hex(uint64_t number) { return fmt::format("{:016x}", number); }

/// JSON has no infinity and no NaN: text keeps all bits of a double, and them.
std::string exact(double value) { return fmt::format("{}", value); }

/// "train.batch" -> "512", of every key of a recipe.
std::map<std::string, std::string> keys_of(const Recipe& recipe) {
  std::map<std::string, std::string> keys;
  std::istringstream lines(to_toml(recipe));
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('[')) {
      section = line.substr(1, line.find(']') - 1);
    } else if (const size_t equals = line.find(" = "); equals != std::string::npos) {
      keys[section + "." + line.substr(0, equals)] = line.substr(equals + 3);
    }
  }
  return keys;
}

bool may_change(const std::string& key) {
  static constexpr const char* kFree[] = {
      // How long and how often.
      "train.epochs", "train.steps", "train.log_every", "train.checkpoint_every", "train.early_stopping",
      // How large the steps are: nothing that is kept depends on it.
      "train.learning_rate", "train.rate_schedule", "train.warmup", "train.weight_decay", "train.clip_norm",
      // What is only reported, and where the dataset lies, which its fingerprint tells.
      "data.season", "data.path"};
  return key.starts_with("parallel.") || std::ranges::count(kFree, key) > 0;
}

}  // namespace

std::map<std::string, std::string> to_metadata(const Workload& work, const TrainingState& state) {
  const StepPlace next = place_of_step(work, state.step);
  const Json json{{"format", kFormat},
                  {"step", state.step},
                  {"epoch", next.epoch},
                  {"items_consumed", next.positions.begin},
                  {"batch", work.recipe.train.batch},
                  {"seed", work.recipe.train.seed},
                  {"dataset", hex(work.dataset.fingerprint)},
                  {"features", hex(hash64(to_json(work.features)))},
                  {"epoch_loss", exact(state.epoch_loss)},
                  {"epoch_weight", exact(state.epoch_weight)},
                  {"last_epoch_loss", exact(state.last_epoch_loss)},
                  {"best_validation", exact(state.best_validation)},
                  {"best_step", state.best_step},
                  {"epochs_without_better", state.epochs_without_better},
                  {"seconds", exact(state.seconds)}};
  return {{kKey, json.dump()}, {"format", "pt"}};
}

TrainingState from_metadata(const Workload& work, const Checkpoint& checkpoint, const Path& path) {
  const std::string file = path.string();
  const auto found = checkpoint.metadata.find(kKey);
  if (found == checkpoint.metadata.end())
    fail("{} is no checkpoint of a training run: its metadata lacks it", file);
  TrainingState state;
  try {
    const Json json = Json::parse(found->second);
    if (json.at("format") != kFormat) {
      fail("{} has format {}, expected {}: another version of troika wrote it", file,
           json.at("format").dump(), kFormat);
    }
    const auto require = [&](const char* key, const Json& now, const char* hint) {
      if (json.at(key) != now) {
        fail("{} can't be resumed: its {} is {}, now it is {}{}", file, key, json.at(key).dump(), now.dump(),
             hint);
      }
    };
    require("dataset", hex(work.dataset.fingerprint), "; the dataset has changed since, start a new run");
    require("features", hex(hash64(to_json(work.features))),
            "; the inputs are encoded differently, start a new run");
    require("batch", work.recipe.train.batch, "");
    require("seed", work.recipe.train.seed, "");
    const auto number = [&](const char* key) { return std::stod(json.at(key).get<std::string>()); };
    state.step = json.at("step").get<int64_t>();
    state.epoch_loss = number("epoch_loss");
    state.epoch_weight = number("epoch_weight");
    state.last_epoch_loss = number("last_epoch_loss");
    state.best_validation = number("best_validation");
    state.best_step = json.at("best_step").get<int64_t>();
    state.epochs_without_better = json.at("epochs_without_better").get<int64_t>();
    state.seconds = number("seconds");
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail("{}: its metadata can't be read: {}", file, error.what());
  }
  if (state.step < 0 || state.best_step < 0 || state.best_step > state.step) {
    fail("{}: its metadata says step {}, the best at step {}", file, state.step, state.best_step);
  }
  return state;
}

void require_same_run(const Recipe& run, const Recipe& now, const Path& run_recipe) {
  std::map<std::string, std::string> before = keys_of(run), after = keys_of(now);
  for (const auto& [key, value] : after) before.try_emplace(key, "not set");
  std::string differences;
  for (const auto& [key, value] : before) {
    const auto other = after.find(key);
    const std::string text = other == after.end() ? "not set" : other->second;
    if (may_change(key) || text == value) continue;
    differences +=
        fmt::format("{}{} is {}, the run has {}", differences.empty() ? "" : "; ", key, text, value);
  }
  if (differences.empty()) return;
  fail_usage("can't resume with another recipe than {}: {}. Start a new run with --run-dir or --overwrite",
             run_recipe.string(), differences);
}

}  // namespace troika
