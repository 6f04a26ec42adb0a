#include "troika/train/auc.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace troika {

double area_under_curve(std::vector<float> positives, std::vector<float> negatives) {
  const auto is_nan = [](float score) { return std::isnan(score); };
  if (positives.empty() || negatives.empty() || std::ranges::any_of(positives, is_nan) ||
      std::ranges::any_of(negatives, is_nan)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  std::ranges::sort(positives);
  std::ranges::sort(negatives);
  // In halves of a pair, so that all is counted in whole numbers.
  int64_t halves = 0;
  size_t below = 0, not_above = 0;
  for (const float score : positives) {
    while (below < negatives.size() && negatives[below] < score) ++below;
    while (not_above < negatives.size() && negatives[not_above] <= score) ++not_above;
    halves += static_cast<int64_t>(below + not_above);
  }
  return static_cast<double>(halves) /
         (2 * static_cast<double>(positives.size()) * static_cast<double>(negatives.size()));
}

int64_t score_columns(const FeaturePlan& plan) {
  if (plan.kind == TargetKind::number || plan.kind == TargetKind::tokens) return 0;
  const auto classes = static_cast<int64_t>(plan.targets[0].classes.size());
  return classes == 2 ? 1 : classes;
}

void write_scores(const FeaturePlan& plan, int64_t rows, int64_t width, const double* outputs,
                  const double* targets, float* records) {
  const int64_t columns = score_columns(plan);
  for (int64_t row = 0; row < rows; ++row, outputs += width) {
    *records++ = static_cast<float>(targets[row]);
    if (columns == 1) {
      *records++ = static_cast<float>(width == 1 ? outputs[0] : outputs[1] - outputs[0]);
      continue;
    }
    const double most = *std::max_element(outputs, outputs + width);
    double sum = 0;
    for (int64_t c = 0; c < width; ++c) sum += std::exp(outputs[c] - most);
    const double log_sum = most + std::log(sum);
    for (int64_t c = 0; c < width; ++c) *records++ = static_cast<float>(outputs[c] - log_sum);
  }
}

ScoreRanking::ScoreRanking(int64_t columns, int64_t part, int64_t parts) : columns_(columns) {
  for (int64_t c = part; c < columns; c += parts) mine_.push_back(c);
  scores_.resize(mine_.size());
}

void ScoreRanking::reserve(int64_t samples) {
  if (mine_.empty()) return;
  classes_.reserve(static_cast<size_t>(samples));
  for (std::vector<float>& scores : scores_) scores.reserve(static_cast<size_t>(samples));
}

void ScoreRanking::add(std::span<const float> records) {
  if (mine_.empty()) return;
  const auto width = static_cast<size_t>(1 + columns_);
  for (size_t at = 0; at < records.size(); at += width) {
    classes_.push_back(records[at]);
    for (size_t i = 0; i < mine_.size(); ++i)
      scores_[i].push_back(records[at + 1 + static_cast<size_t>(mine_[i])]);
  }
}

std::vector<double> ScoreRanking::areas() const {
  std::vector<double> areas(static_cast<size_t>(2 * columns_));
  for (size_t i = 0; i < mine_.size(); ++i) {
    // With two classes the one column is the second class'.
    const auto which = static_cast<float>(columns_ == 1 ? 1 : mine_[i]);
    std::vector<float> positives, negatives;
    for (size_t sample = 0; sample < classes_.size(); ++sample)
      (classes_[sample] == which ? positives : negatives).push_back(scores_[i][sample]);
    if (positives.empty() || negatives.empty()) continue;
    areas[static_cast<size_t>(mine_[i])] = area_under_curve(std::move(positives), std::move(negatives));
    areas[static_cast<size_t>(columns_ + mine_[i])] = 1;
  }
  return areas;
}

double ScoreRanking::mean(std::span<const double> areas) {
  const size_t columns = areas.size() / 2;
  double sum = 0, count = 0;
  for (size_t c = 0; c < columns; ++c) {
    sum += areas[c];
    count += areas[columns + c];
  }
  return count > 0 ? sum / count : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace troika
