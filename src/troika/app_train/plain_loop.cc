#include "troika/app_train/plain_loop.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <fmt/format.h>

#include "troika/base/clock.h"
#include "troika/base/progress.h"
#include "troika/base/text.h"
#include "troika/train/rate_schedule.h"
#include "troika/train/scan_samples.h"
#include "troika/train/verify.h"

namespace troika {
namespace {

constexpr int64_t kWarmUpSteps = 10;  // as in troika train: allocators and caches settle

Metrics evaluate(const Workload& work, Model& model, const RowSet& rows) {
  const c10::InferenceMode no_gradients;
  model.train(false);
  MetricSums sums(work.features);
  scan_samples(work.dataset, rows, work.features.windows.span(), [&](const RowBuffer& buffer) {
    const Batch batch = make_batch(work, buffer);
    const Tensors outputs = model.forward(batch.inputs);
    const LossValue loss = work.loss(outputs, batch);
    const at::Tensor predicted = outputs[0].to(at::kDouble).contiguous();
    std::vector<double> targets(static_cast<size_t>(batch.samples * work.features.target_width()));
    raw_targets(work.features, work.dataset, buffer, targets.data());
    sums.add(work.features, work.features.counted(batch.samples), predicted.size(-1),
             predicted.const_data_ptr<double>(), targets.data(), loss.sum.item<double>());
  });
  return sums.metrics(work.features);
}

}  // namespace

PlainLoopReport run_plain_loop(const Workload& work, int threads) {
  at::set_num_threads(threads);
  Model model(work.layers, work.recipe.train.seed, work.dtype());
  std::vector<at::Tensor> parameters;
  for (const NamedTensor& named : model.parameters()) parameters.push_back(named.tensor);
  PlainOptimizer optimizer = plain_optimizer(optimizer_of(work.recipe.train));
  optimizer.clip_norm = work.recipe.train.clip_norm;
  PlainRun run(parameters, optimizer);
  const auto source = open_training_source(work, 1);
  RowBuffer rows;
  Progress progress;
  PlainLoopReport report;
  double epoch_loss = 0;
  int64_t samples = 0;
  Clock::time_point from = Clock::now();
  for (int64_t step = 0; step < work.total_steps(); ++step) {
    if (step == kWarmUpSteps) {
      from = Clock::now();
      samples = 0;
    }
    const StepPlace place = place_of_step(work, step);
    source->gather(0, place.epoch, place.positions, rows);
    const Batch batch = make_batch(work, rows);
    run.set_learning_rate(learning_rate_at(work.recipe.train, step, work.total_steps()));
    const double loss = run.step([&] {
      const LossValue value = work.loss(model.forward(batch.inputs), batch);
      return value.sum / value.weight;
    });
    samples += batch.samples;
    if (place.positions.begin == 0) epoch_loss = 0;
    epoch_loss += loss * static_cast<double>(batch.samples);
    report.train_loss = epoch_loss / static_cast<double>(place.positions.end);
    progress.update(fmt::format("plain LibTorch loop  step {}  loss {:.4f}", with_commas(step + 1), loss),
                    static_cast<double>(step + 1), static_cast<double>(work.total_steps()));
  }
  report.samples_per_s = static_cast<double>(samples) / seconds_since(from);
  report.test = evaluate(work, model, work.split.test);
  return report;
}

}  // namespace troika
