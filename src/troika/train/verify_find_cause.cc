#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "troika/schedule/partition.h"
#include "troika/train/verify_cause.h"
#include "troika/train/verify_comparison.h"
#include "troika/train/verify_plain.h"

namespace troika {
namespace {

/// Looks at one value: the loss, or the gradient of a parameter.
class CauseFinder {
 public:
  CauseFinder(const VerifyWork& work, const StepRecord& record, const std::vector<at::Tensor>& before_last,
              PlainReference& plain, double tolerance)
      : work_(work), record_(record), before_last_(before_last), plain_(plain), tolerance_(tolerance) {}

  /// `parameter` by its number; -1: the loss.
  Cause find(int64_t parameter) {
    parameter_ = parameter;
    got_ = parameter < 0 ? at::scalar_tensor(record_.loss, at::kDouble)
                         : record_.gradients[static_cast<size_t>(parameter)];
    Cause cause =
        cause_from_pieces(got_, plain_.pieces_at(step(), right())[static_cast<size_t>(1 + parameter)],
                          tolerance_, work_.options.mesh.pipeline);
    if (!cause.is_known() && parameter >= 0) cause = from_ties();
    if (!cause.is_known() && parameter >= 0) cause = from_lost_messages();
    if (!cause.is_known()) cause = from_weights();
    return cause;
  }

 private:
  int64_t step() const { return record_.step - 1; }
  const std::vector<at::Tensor>& right() const { return record_.weights_before[0]; }

  Cause from_ties() {
    const std::vector<PlainReference::Part> parts =
        plain_.tied_parts(step(), right(), static_cast<size_t>(parameter_));
    if (parts.empty()) return {};
    at::Tensor sum = parts[0].gradient;
    for (size_t i = 1; i < parts.size(); ++i) sum = sum + parts[i].gradient;
    for (const auto& [name, gradient] : parts) {
      if (close(got_, sum + gradient, tolerance_)) {
        return {"tied_twice", fmt::format("the gradient of its use as {} counts twice", name)};
      }
      if (close(got_, sum - gradient, tolerance_)) {
        return {"missing_contribution", fmt::format("the gradient of its use as {} is lost", name)};
      }
    }
    return {};
  }

  /// A stage, or who gets a skip, sends no gradient back: for all samples, a micro-batch or a piece.
  Cause from_lost_messages() {
    struct Lost {
      PlainMistake mistake;
      std::string text;
    };
    std::vector<Lost> messages;
    const auto lose = [&](int64_t layer, const std::string& skip, const std::string& text) {
      messages.push_back({{}, text});
      messages.back().mistake.deaf_layer = layer;
      messages.back().mistake.lost_skip = skip;
    };
    for (size_t i = 0; i < work_.layers.size(); ++i) {
      for (const std::string& skip : work_.layers[i].gets) {
        lose(
            static_cast<int64_t>(i), skip,
            fmt::format("the gradient of skip \"{}\" from layer \"{}\" is lost", skip, work_.layers[i].name));
      }
    }
    for (size_t s = 1; work_.options.pipeline && s < work_.options.pipeline->starts.size(); ++s) {
      lose(work_.options.pipeline->starts[s], "",
           fmt::format("the gradient that stage {} sends to stage {} is lost", s, s - 1));
    }
    const size_t index = static_cast<size_t>(1 + parameter_);
    const PieceValues all = plain_.pieces_at(step(), right())[index];
    for (const Lost& message : messages) {
      const PieceValues without = plain_.pieces_at(step(), right(), message.mistake)[index];
      const Cause cause = from_lost_pieces(all, without);
      if (cause.is_known()) return {cause.name, message.text + cause.detail};
    }
    return {};
  }

  Cause from_lost_pieces(const PieceValues& all, const PieceValues& without) const {
    const size_t ranks = all.sums.size(), micro_batches = all.sums[0].size();
    const auto is_lost = [&](const auto& in_part) {
      at::Tensor sum = at::zeros_like(all.sums[0][0]);
      double weight = 0;
      for (size_t r = 0; r < ranks; ++r) {
        for (size_t j = 0; j < micro_batches; ++j) {
          sum = sum + (in_part(r, j) ? without : all).sums[r][j];
          weight += all.weights[r][j];
        }
      }
      return weight > 0 && close(got_, sum / weight, tolerance_);
    };
    if (is_lost([](size_t, size_t) { return true; })) return {"missing_contribution", ""};
    for (size_t piece = 0; piece < micro_batches; ++piece) {
      if (is_lost([&](size_t, size_t j) { return j == piece; })) {
        return {"missing_contribution", fmt::format(", of micro-batch {}", piece)};
      }
      for (size_t rank = 0; rank < ranks; ++rank) {
        if (!is_lost([&](size_t r, size_t j) { return r == rank && j == piece; })) continue;
        return {"missing_contribution", fmt::format(", of micro-batch {} of data rank {}", piece, rank)};
      }
    }
    return {};
  }

  struct Weights {
    const std::vector<at::Tensor>* values;  // null: the right ones
    const char* text;
  };

  /// A stage, or all of them, computes with weights of another step.
  Cause from_weights() {
    const Weights now{nullptr, "this step's weights"},
        next{&record_.weights_after[0], "the next step's weights"},
        last{&before_last_, "the weights of the step before"};
    std::vector<std::pair<Weights, Weights>> pairs{{next, next}, {now, next}};
    if (!before_last_.empty()) pairs.insert(pairs.begin(), {{last, last}, {last, now}, {now, last}});
    const auto layers = static_cast<int64_t>(work_.layers.size());
    std::vector<std::pair<Range, std::string>> places{{{0, layers}, "every layer"}};
    if (work_.options.pipeline) {
      const std::vector<int64_t>& starts = work_.options.pipeline->starts;
      for (size_t s = 0; starts.size() > 1 && s < starts.size(); ++s) {
        places.push_back({layers_of_stage(starts, s, work_.layers.size()), fmt::format("stage {}", s)});
      }
    }
    for (const auto& [range, place] : places) {
      for (const auto& [forward, backward] : pairs) {
        PlainMistake mistake;
        mistake.layers = range;
        mistake.forward = forward.values;
        mistake.backward = backward.values;
        if (!is_made_by(mistake)) continue;
        const std::string how =
            forward.values == backward.values || parameter_ < 0
                ? fmt::format("computes with {}", forward.text)
                : fmt::format("goes forward with {} and back with {}", forward.text, backward.text);
        return {"stale_or_new_weights", place + " " + how};
      }
    }
    return {};
  }

  bool is_made_by(const PlainMistake& mistake) {
    const PlainReference::Step made = plain_.with_mistake(step(), right(), mistake);
    return close(got_,
                 parameter_ < 0 ? at::scalar_tensor(made.loss, at::kDouble)
                                : made.gradients[static_cast<size_t>(parameter_)],
                 tolerance_);
  }

  const VerifyWork& work_;
  const StepRecord& record_;
  const std::vector<at::Tensor>& before_last_;
  PlainReference& plain_;
  double tolerance_;
  int64_t parameter_ = -1;
  at::Tensor got_;
};

}  // namespace

Cause find_cause(const VerifyWork& work, const Difference& first, const StepRecord& record,
                 const std::vector<at::Tensor>& before_last, PlainReference& plain, double tolerance) {
  if (Cause cause = cause_from_tensor_ranks(work, record, plain, tolerance); cause.is_known()) return cause;
  CauseFinder finder(work, record, before_last, plain, tolerance);
  if (first.what == "loss") return finder.find(-1);
  const auto at = std::ranges::find(plain.names(), first.parameter);
  if (first.what != "gradients" || at == plain.names().end()) return {};
  return finder.find(at - plain.names().begin());
}

}  // namespace troika
