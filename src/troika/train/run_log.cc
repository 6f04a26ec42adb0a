#include "troika/train/run_log.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "troika/base/text.h"

namespace troika::internal {

RunLog::RunLog(const Workload& work, RunDir& dir, EventsFile& events, Progress& progress, int64_t first_step)
    : work_(work), dir_(dir), events_(events), progress_(progress), first_step_(first_step) {}

void RunLog::step(const LoggedStep& step) {
  const auto samples = static_cast<double>(step.samples);
  window_loss_ += step.loss * samples;
  window_samples_ += samples;
  window_seconds_ += step.seconds;
  pauses_[kData] += step.data_seconds;
  pauses_[kRanks] += step.waited_seconds;
  const double rate = window_samples_ / window_seconds_;
  if (progress_.due()) show(step, rate);
  const TrainRecipe& train = work_.recipe.train;
  if (step.step % train.log_every != 0 && step.step % work_.steps_per_epoch() != 0 &&
      step.step != work_.total_steps()) {
    return;
  }
  nlohmann::ordered_json line{{"step", step.step},
                              {"epoch", (step.step - 1) / work_.steps_per_epoch() + 1},
                              {"loss", step.loss},
                              {"samples_per_s", rate},
                              {"seconds", step.total_seconds}};
  std::vector<Scalar> scalars = {{"loss/train", step.loss}, {"samples_per_s", rate}};
  if (train.clip_norm > 0) {
    line["grad_norm"] = step.grad_norm;
    scalars.push_back({"grad_norm", step.grad_norm});
  }
  if (train.rate_schedule != "none" || train.warmup > 0) line["learning_rate"] = step.learning_rate;
  scalars.push_back({"learning_rate", step.learning_rate});
  dir_.append(line.dump());
  events_.add(step.step, scalars);
  window_loss_ = window_samples_ = window_seconds_ = 0;
}

void RunLog::show(const LoggedStep& step, double rate) {
  const std::string waits = waiting();
  progress_.update(fmt::format("epoch {}  step {}  loss {:.4g}  {} samples/s{}{}",
                               (step.step - 1) / work_.steps_per_epoch() + 1, with_commas(step.step),
                               window_loss_ / window_samples_, with_commas(static_cast<int64_t>(rate)),
                               waits.empty() ? "" : "  ", waits),
                   static_cast<double>(step.step - first_step_),
                   static_cast<double>(work_.total_steps() - first_step_));
}

void RunLog::validation(int64_t step, int64_t epoch, double loss, const Metrics& metrics) {
  const nlohmann::ordered_json line{
      {"step", step}, {"epoch", epoch}, {"validation_loss", loss}, {"validation", to_json(metrics)}};
  dir_.append(line.dump());
  std::vector<Scalar> scalars = {{"loss/validation", loss}};
  for (const auto& [name, value] : metrics.values) scalars.push_back({"metrics/" + name, value});
  events_.add(step, scalars);
}

void RunLog::evaluating(const std::string& what, int64_t step, int64_t done, int64_t total) {
  if (!progress_.due()) return;
  progress_.update(fmt::format("step {}  evaluating: {} of {} {} samples", with_commas(step),
                               with_commas(done), with_commas(total), what),
                   0, 0);
}

void RunLog::sync() {
  dir_.sync_log();
  events_.sync();
}

std::string RunLog::waiting() {
  const double seconds = seconds_since(shown_);
  const std::string text =
      waiting_text(pauses_[kData], pauses_[kRanks], pauses_[kEvaluation], pauses_[kCheckpoints], seconds);
  pauses_ = {};
  shown_ = Clock::now();
  return text;
}

std::string waiting_text(double data, double ranks, double evaluation, double checkpoints, double seconds) {
  std::string text;
  const auto part = [&](const char* what, double of_it) {
    const double percent = 100 * of_it / seconds;
    if (seconds > 0 && percent >= 1) {
      text += fmt::format("{}{} {:.0f} %", text.empty() ? "waiting: " : ", ", what, percent);
    }
  };
  part("data", data);
  part("other ranks", ranks);
  part("evaluation", evaluation);
  part("checkpoints", checkpoints);
  return text;
}

}  // namespace troika::internal
