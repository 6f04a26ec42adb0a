#include "troika/train/trainer.h"

#include <fmt/ranges.h>

#include <limits>
#include <tuple>

#include "troika/base/cpu.h"
#include "troika/base/error.h"
#include "troika/base/interrupt.h"
#include "troika/base/memory.h"
#include "troika/base/text.h"
#include "troika/comm/rank_group.h"
#include "troika/parallel/tensor/tensor_plan.h"
#include "troika/train/mesh_picture.h"
#include "troika/train/pipeline_trace.h"
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
  const auto is_cut_as = [](const ParallelRecipe& p) {
    return std::tuple(p.mesh ? p.mesh->pipeline : 1, p.schedule, p.chunks, p.memory_limit_bytes);
  };
  if (parallel.cuts.empty() && is_cut_as(parallel) == is_cut_as(run.parallel)) {
    parallel.cuts = run.parallel.cuts;
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

/// The rows of a run, open for its ranks.
struct Opened {
  explicit Opened(const Workload& work) : source(open_training_source(work, work.ranks())) {
    const auto evaluator = [&work](const RowSet& rows) {
      return rows.count() == 0 ? nullptr : std::make_unique<Evaluator>(work, rows, work.ranks());
    };
    validation = evaluator(work.split.validation);
    test = evaluator(work.split.test);
  }
  std::unique_ptr<BatchSource> source;
  std::unique_ptr<Evaluator> validation, test;  // null if there are no such rows
};

void set_layout(ParallelRecipe& parallel, const Layout& layout) {
  parallel.ranks = layout.ranks;
  parallel.mesh = Mesh{static_cast<int>(layout.ranks), 1, 1};
  parallel.threads_per_rank = layout.threads;
}

/// What can't come true, said before anything is written.
void require_sense(const Workload& work, const TrainOptions& options) {
  const TrainRecipe& train = work.recipe.train;
  if (train.early_stopping > 0 && work.split.validation.count() == 0) {
    fail_usage(
        "train.early_stopping = {} needs validation rows, and data.split keeps none; set "
        "data.split.validation, or early_stopping = 0",
        train.early_stopping);
  }
  if (!options.overwrite || train.start_from.empty()) return;
  const Path folder = std::filesystem::weakly_canonical(options.run_dir);
  const Path given = std::filesystem::weakly_canonical(train.start_from);
  if (given == folder || given.parent_path() == folder) {
    fail_usage("train.start_from is {}, which --overwrite would remove first; choose another --run-dir",
               train.start_from);
  }
}

/// Decides ranks and threads by trial. False if Ctrl-C ended it.
bool choose_layout(Workload& work, const ParallelRecipe& asked, const TrainOptions& options,
                   Progress& progress, TrainReport& report) {
  const TrialResult trial = try_layouts(work, asked, usable_cores(), progress, options.trial);
  if (trial.interrupted) return false;
  if (!trial.rates.empty()) progress.line(trial_table(trial));
  progress.line(fmt::format("auto: {} ({})", to_string(trial.chosen), trial.reason));
  set_layout(work.recipe.parallel, trial.chosen);
  report.tried = trial.rates;
  return true;
}

/// Between a checkpoint and its copy as the best one the run may have been killed.
void restore_best(RunDir& dir, TrainingState& state, Progress& progress) {
  if (state.best_step == 0) return;
  if (state.best_step == state.step) {
    dir.mark_best();
  } else if (!std::filesystem::exists(dir.best())) {
    progress.line(fmt::format("{} is missing: the best is looked for anew", dir.best().string()));
    state.best_step = 0;
    state.best_validation = std::numeric_limits<double>::infinity();
  }
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
    const bool decided = std::filesystem::exists(dir->recipe());
    if (!decided && std::filesystem::exists(dir->last())) {
      fail("{} is missing, so the run can't be resumed; start again with --overwrite",
           dir->recipe().string());
    }
    if (decided) {  // else it was killed before it wrote anything
      const Recipe before = parse_recipe(dir->recipe());
      require_same_run(before, recipe, dir->recipe());
      wanted = with_choices_of(before, recipe);
    }
  }
  const ParallelRecipe asked = wanted.parallel;
  const bool automatic = !asked.ranks && !asked.mesh;
  if (automatic) set_layout(wanted.parallel, {1, asked.threads_per_rank.value_or(1)});
  Workload work = prepare(wanted);
  work.ranks_were_auto = automatic;
  require_sense(work, options);
  describe_data(work, progress);
  // Before the rows are opened for the ranks: two sources at a time take twice the memory budget.
  if (work.mesh().pipeline > 1 && !work.profile) {
    work.profile = profile_model(work, has_parts(work.pipeline->options.schedule));
  }
  std::unique_ptr<Opened> opened = std::make_unique<Opened>(work);
  TrainReport report;
  report.seconds_between_rows = seconds_between_rows(work.dataset, work.features.windows, work.split);
  const std::optional<int64_t> season =
      choose_season(work.recipe.data, work.features.windows, report.seconds_between_rows);
  report.baselines = measure_baselines(work.features, work.dataset, work.split, season);
  if (const std::string text = to_beat(report.baselines); !text.empty()) progress.line(text);
  if (!dir) dir.emplace(options.run_dir, options.overwrite ? RunDir::Mode::overwrite : RunDir::Mode::fresh);

  report.run_dir = dir->folder();
  const bool begun = std::filesystem::exists(dir->last());
  if (automatic) {
    // Written before the trial, so that a run that ends in it can be resumed too.
    Recipe undecided = work.recipe;
    undecided.parallel = asked;
    write_whole(dir->recipe(), to_toml(undecided));
    opened.reset();  // it may hold much memory, and was opened to see that it can be
    if (!choose_layout(work, asked, options, progress, report)) {
      dir->keep();
      report.train_loss = std::numeric_limits<double>::quiet_NaN();  // nothing was learned yet
      report.peak_rss_bytes = peak_rss_bytes();
      report.seconds = seconds_since(begin);
      return report;
    }
    opened = std::make_unique<Opened>(work);
  }
  std::optional<Checkpoint> resumed;
  TrainingState start;
  if (begun) {
    resumed = read_checkpoint(dir->last());
    start = from_metadata(work, *resumed, dir->last());
    progress.line(fmt::format("resuming {} after step {}", dir->folder().string(), with_commas(start.step)));
    restore_best(*dir, start, progress);
  } else if (options.resume) {
    progress.line(
        fmt::format("{} has no checkpoint yet: starting from the first step", dir->folder().string()));
  }
  dir->truncate_log(start.step);
  EventsFile events(dir->folder(), start.step);
  write_whole(dir->recipe(), to_toml(work.recipe));
  write_whole(dir->features(), to_json(work.features));

  report.mesh = work.mesh();
  report.schedule = work.schedule();
  const RunPlan plan = work.profile ? plan_stages(work) : RunPlan{};
  report.micro_batches = work.recipe.parallel.micro_batches;
  report.threads_per_rank = *work.recipe.parallel.threads_per_rank;
  if (work.mesh().pipeline > 1) {
    report.predicted_bubble_rate = plan.bubble;
    progress.line(plan.text);
  }
  if (work.tensor_plan) {
    std::vector<std::string> names;
    for (const Layer& layer : work.layers) names.push_back(layer.name);
    progress.line(table_of(*work.tensor_plan));
    progress.line(mesh_picture(work.mesh(), names, work.lanes_of_stages(), work.starts()));
  }
  std::vector<std::vector<Span>> spans(static_cast<size_t>(work.ranks()));
  internal::Run run{work,
                    options,
                    *dir,
                    events,
                    progress,
                    *opened->source,
                    opened->validation.get(),
                    opened->test.get(),
                    resumed ? &*resumed : nullptr,
                    start,
                    begin,
                    report,
                    spans};
  run_ranks(run);

  for (size_t stage = 0; stage < plan.stages.size(); ++stage) {
    report.stages.at(stage).predicted_peak_bytes = plan.stages[stage].peak_bytes;
  }
  report.trace = gathered(spans);
  if (work.mesh().pipeline > 1 && !report.trace.spans.empty()) {
    const PipelineOptions& pipeline = work.pipeline->options;
    const Schedule schedule =
        pipeline.window ? pipeline.window(static_cast<int>(report.traced_steps)) : pipeline.schedule;
    report.lanes = lanes_of_first_replica(report.trace, work.mesh());
    report.simulated = simulated_from(schedule, report.lanes);
    report.measured_bubble_rate = measured_bubble(schedule, report.lanes);
  }
  report.peak_rss_bytes = peak_rss_bytes();
  report.seconds = seconds_since(begin);
  return report;
}

}  // namespace troika
