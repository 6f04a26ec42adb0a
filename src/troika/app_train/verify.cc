// troika verify: proves on the user's own model and data that the parallel run equals the serial one.
#include <ATen/ATen.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>

#include "troika/app_train/status.h"
#include "troika/app_train/verify_work.h"
#include "troika/base/error.h"
#include "troika/base/progress.h"
#include "troika/base/request.h"
#include "troika/train/rate_schedule.h"

namespace troika {
namespace {

/// The rows of the steps to verify. The source only goes forward; the references look back one step at the
/// most.
class StepRows {
 public:
  explicit StepRows(const Workload& work) : work_(work) {}

  RowBuffer part(int64_t step, Range samples) {
    const std::lock_guard lock(mutex_);
    const RowBuffer& whole = rows_of(step);
    const int64_t span = whole.rows / place_of_step(work_, step).positions.size();
    const Range rows{samples.begin * span, samples.end * span};
    RowBuffer out;
    out.rows = rows.size();
    const auto slice = [&](const auto& from, auto& to, int64_t columns) {
      to.assign(from.begin() + rows.begin * columns, from.begin() + rows.end * columns);
    };
    slice(whole.floats, out.floats, work_.dataset.float_columns);
    slice(whole.ints, out.ints, work_.dataset.int_columns);
    return out;
  }

 private:
  const RowBuffer& rows_of(int64_t step) {
    if (step == step_) return rows_;
    if (!source_ || step < step_) source_ = open_training_source(work_, 1);
    const StepPlace place = place_of_step(work_, step);
    source_->gather(0, place.epoch, place.positions, rows_);
    step_ = step;
    return rows_;
  }

  const Workload& work_;
  std::mutex mutex_;
  std::unique_ptr<BatchSource> source_;
  int64_t step_ = -1;
  RowBuffer rows_;
};

const char* name_of(at::ScalarType type) { return type == at::kDouble ? "float64" : "float32"; }

const char* precision_of(const ReplicaOptions& options) {
  return options.bf16 ? "bf16" : name_of(options.dtype);
}

std::string to_json(const VerifyResult& result, const Workload& work, const VerifyWork& verified,
                    at::ScalarType precision) {
  nlohmann::ordered_json json;
  json["equal"] = result.equal;
  json["reference"] = result.reference;
  json["bitwise"] = result.bitwise;
  json["max_abs_diff"] = result.max_abs_diff;
  json["max_rel_diff"] = result.max_rel_diff;
  json["tolerance"] = result.tolerance;
  const Mesh& mesh = work.mesh();
  json["mesh"] = {{"data", mesh.data}, {"pipeline", mesh.pipeline}, {"tensor", mesh.tensor}};
  json["schedule"] = work.schedule();
  json["micro_batches"] = verified.micro_batches;
  json["weights"] = work.recipe.parallel.weights;
  json["precision"] = name_of(precision);
  json["bitwise_precision"] = precision_of(verified.options);
  json["steps"] = verified.steps;
  json["exact"] = result.reference == "plain";
  json["compared"] = {{"losses", result.losses},
                      {"gradients", result.gradients},
                      {"weights", result.weights},
                      {"buffers", result.buffers}};
  json["first_difference"] = nullptr;
  if (const auto& first = result.first_difference) {
    json["first_difference"] = {{"step", first->step},
                                {"what", first->what},
                                {"parameter", first->parameter},
                                {"factor", first->factor},
                                {"likely_cause", first->likely_cause},
                                {"detail", first->detail}};
  }
  return json.dump(2);
}

std::string to_text(const VerifyResult& result, const Workload& work, const VerifyWork& verified,
                    at::ScalarType precision) {
  const bool delayed = result.reference == "delayed", sliced = work.mesh().tensor > 1;
  std::string text = fmt::format(
      "{}: mesh {}{}, {} weights, {} micro-batch{}, {} steps\n"
      "  against {}, {}: {} (largest relative difference {:.2g}, tolerance {:.0g})\n"
      "  against {}, {}: {}\n"
      "  compared: {} losses, {} gradients, {} weights, {} buffers\n",
      result.equal && result.bitwise ? "equal" : "NOT EQUAL", to_string(work.mesh()),
      work.pipeline ? fmt::format(", schedule {}", work.schedule()) : "", work.recipe.parallel.weights,
      verified.micro_batches, verified.micro_batches == 1 ? "" : "es", verified.steps,
      delayed ? "one thread that applies the same delayed updates" : "the plain run", name_of(precision),
      result.equal ? "equal" : "not equal", result.max_rel_diff, result.tolerance,
      sliced    ? "one thread for each slice of the layers"
      : delayed ? "the same"
                : "one thread that computes the same pieces",
      precision_of(verified.options), result.bitwise ? "equal bit for bit" : "not bit for bit", result.losses,
      result.gradients, result.weights, result.buffers);
  if (const auto& first = result.first_difference) {
    text += fmt::format("  first difference: step {}, {} {}: {:.6g} times the serial one; likely cause: {}\n",
                        first->step, first->what, first->parameter, first->factor, first->likely_cause);
    if (!first->detail.empty()) text += fmt::format("    {}\n", first->detail);
  }
  return text;
}

/// verify never chooses by itself: the recipe's ranks if there are several, else two.
Recipe with_several_ranks(Recipe recipe, Progress& progress) {
  ParallelRecipe& parallel = recipe.parallel;
  const int64_t ranks = parallel.mesh ? parallel.mesh->ranks() : parallel.ranks.value_or(1);
  if (ranks > 1) return recipe;
  progress.line("the recipe has no mesh of several ranks: verifying data=2");
  parallel.ranks = 2;
  parallel.mesh = Mesh{2, 1, 1};
  return recipe;
}

int verify_command(const VerifyRequest& request) {
  Progress progress(request.quiet);
  const Workload work = prepare(with_several_ranks(load_recipe(request), progress));
  const VerifyWork verified = verify_work(work, request.steps);
  const at::ScalarType precision = request.precision == "float32" ? at::kFloat : at::kDouble;
  const VerifyResult result = verify(verified, precision);
  if (request.json) {
    fmt::print("{}\n", to_json(result, work, verified, precision));
  } else {
    fmt::print("{}", to_text(result, work, verified, precision));
  }
  return result.equal && result.bitwise ? 0 : 1;
}

}  // namespace

VerifyWork verify_work(const Workload& work, int64_t steps) {
  const auto rows = std::make_shared<StepRows>(work);
  VerifyWork out;
  out.layers = work.layers;
  out.loss = work.loss;
  out.options = replica_options(work);
  out.ranks = work.mesh().data;
  out.micro_batches = static_cast<int>(work.recipe.parallel.micro_batches);
  out.threads_per_rank = static_cast<int>(*work.recipe.parallel.threads_per_rank);
  out.steps = steps;
  if (work.pipeline && work.pipeline->longest_window > 0) {
    out.steps = std::min(steps, work.pipeline->longest_window);
  }
  out.schedule = work.schedule();
  out.batch_size = [&work](int64_t step) { return place_of_step(work, step).positions.size(); };
  out.batch = [&work, rows](int64_t step, Range samples, at::ScalarType dtype) {
    Batch batch = make_batch(work, rows->part(step, samples), samples.begin);
    const auto convert = [dtype](at::Tensor& t) {
      if (t.is_floating_point()) t = t.to(dtype);
    };
    for (at::Tensor& input : batch.inputs) convert(input);
    convert(batch.target);
    return batch;
  };
  out.learning_rate = [train = work.recipe.train, steps = work.total_steps()](int64_t step) {
    return learning_rate_at(train, step, steps);
  };
  return out;
}

}  // namespace troika

extern "C" int troika_verify(const troika::VerifyRequest& request) {
  return troika::status_of([&] { return troika::verify_command(request); });
}
