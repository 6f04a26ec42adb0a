#include "troika/train/trainer.h"

#include <fmt/ranges.h>

#include "troika/base/error.h"
#include "troika/base/interrupt.h"
#include "troika/base/memory.h"
#include "troika/base/text.h"
#include "troika/comm/rank_group.h"
#include "troika/train/rank_loop.h"

namespace troika {
namespace {

/// A resumed run keeps what "auto" chose when it began.
Recipe with_choices_of(const Recipe& run, Recipe recipe) {
  ParallelRecipe& parallel = recipe.parallel;
  if (!parallel.ranks && !parallel.mesh) {
    parallel.ranks = run.parallel.ranks;
    parallel.mesh = run.parallel.mesh;
  }
  const auto ranks_of = [](const ParallelRecipe& p) {
    return p.mesh ? p.mesh->ranks() : p.ranks.value_or(0);
  };
  if (!parallel.threads_per_rank && ranks_of(parallel) == ranks_of(run.parallel)) {
    parallel.threads_per_rank = run.parallel.threads_per_rank;
  }
  return recipe;
}

void describe_data(const Workload& work, Progress& progress) {
  std::vector<std::string> targets;
  for (const TargetColumn& target : work.features.targets) targets.push_back(target.column);
  const int64_t used = work.dataset.rows - work.split.null_targets;
  progress.line(fmt::format("data: {} rows, {} with a target; {}", with_commas(work.dataset.rows),
                            with_commas(used), work.split.description));
  progress.line(
      fmt::format("inputs: {} numbers, {} categories -> {}{}", work.features.floats.size(),
                  work.features.categories.size(), fmt::join(targets, ", "),
                  work.features.left_out.empty()
                      ? ""
                      : fmt::format("; left out, all null: {}", fmt::join(work.features.left_out, ", "))));
}

std::unique_ptr<Evaluator> evaluator(const Workload& work, const RowSet& rows) {
  if (rows.count() == 0) return nullptr;
  return std::make_unique<Evaluator>(work, rows, work.ranks());
}

Trace gathered(const std::vector<std::vector<Span>>& spans) {
  Trace trace;
  trace.ranks = static_cast<int>(spans.size());
  for (const std::vector<Span>& lane : spans) trace.spans.insert(trace.spans.end(), lane.begin(), lane.end());
  return trace;
}

/// Rank threads; a failure after the first checkpoint says that there is one.
void run_ranks(internal::Run& run) {
  GroupOptions group;
  group.deadline_seconds = run.work.recipe.parallel.deadline;
  try {
    run_thread_ranks(run.work.ranks(), group,
                     [&run](Communicator& communicator) { internal::train_rank(run, communicator); });
  } catch (const UsageError&) {
    throw;
  } catch (const Error& error) {
    const std::string text = error.what();
    const bool kept = std::filesystem::exists(run.dir.last());
    fail("{}{}{}", text,
         text.find("not finite") == std::string::npos
             ? ""
             : fmt::format(" (train.learning_rate is {})", run.work.recipe.train.learning_rate),
         kept ? fmt::format(". The last checkpoint is kept: {}", run.dir.last().string()) : "");
  }
}

}  // namespace

TrainReport train(const Recipe& recipe, const TrainOptions& options) {
  const auto begin = Clock::now();
  const InterruptGuard guard;
  Progress progress(options.quiet);

  // Resuming needs the run first; a fresh run leaves no trace until everything else is known to work.
  std::optional<RunDir> dir;
  Recipe wanted = recipe;
  if (options.resume) {
    dir.emplace(options.run_dir, RunDir::Mode::resume);
    if (!std::filesystem::exists(dir->recipe())) {
      fail("{} is missing, so the run can't be resumed; start again with --overwrite",
           dir->recipe().string());
    }
    const Recipe before = parse_recipe(dir->recipe());
    require_same_run(before, recipe, dir->recipe());
    wanted = with_choices_of(before, recipe);
  }
  const Workload work = prepare(wanted);
  describe_data(work, progress);
  const std::unique_ptr<BatchSource> source = open_training_source(work, work.ranks());
  const std::unique_ptr<Evaluator> validation = evaluator(work, work.split.validation);
  const std::unique_ptr<Evaluator> test = evaluator(work, work.split.test);
  TrainReport report;
  report.seconds_between_rows = seconds_between_rows(work.dataset, work.features.windows);
  const std::optional<int64_t> season =
      choose_season(work.recipe.data, work.features.windows, report.seconds_between_rows);
  report.baselines = measure_baselines(work.features, work.dataset, work.split, season);
  if (const std::string text = to_beat(report.baselines); !text.empty()) progress.line(text);
  std::optional<Checkpoint> resumed;
  TrainingState start;
  if (!dir) dir.emplace(options.run_dir, options.overwrite ? RunDir::Mode::overwrite : RunDir::Mode::fresh);
  if (options.resume && std::filesystem::exists(dir->last())) {
    resumed = read_checkpoint(dir->last());
    start = from_metadata(work, *resumed, dir->last());
    progress.line(fmt::format("resuming {} after step {}", dir->folder().string(), with_commas(start.step)));
  } else if (options.resume) {
    progress.line(
        fmt::format("{} has no checkpoint yet: starting from the first step", dir->folder().string()));
  }
  dir->truncate_log(start.step);
  write_whole(dir->recipe(), to_toml(work.recipe));
  write_whole(dir->features(), to_json(work.features));

  report.run_dir = dir->folder();
  report.mesh = *work.recipe.parallel.mesh;
  report.micro_batches = work.recipe.parallel.micro_batches;
  report.threads_per_rank = *work.recipe.parallel.threads_per_rank;
  std::vector<std::vector<Span>> spans(static_cast<size_t>(work.ranks()));
  internal::Run run{
      work,  options, *dir,   progress, *source, validation.get(), test.get(), resumed ? &*resumed : nullptr,
      start, begin,   report, spans,    {}};
  run_ranks(run);

  report.trace = gathered(spans);
  report.peak_rss_bytes = peak_rss_bytes();
  report.seconds = seconds_since(begin);
  return report;
}

}  // namespace troika
