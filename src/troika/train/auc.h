// The area under the ROC curve: how probable it is that a sample of a class scores higher than one of the
// others, ties counted half. Exact, over all samples: it isn't a sum over batches, so it needs their scores.
// Two classes: of the second one. More: each class against the rest by its log-probability, and the mean over
// classes that occur. See Fawcett, An introduction to ROC analysis, Pattern Recognition Letters 27 (2006).
//
// Memory: 4 bytes for each sample and score, and 4 for its class; while one is ranked, 4 more a sample.
// No torch. Threading: a value; one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "troika/train/encoder.h"

namespace troika {

/// NaN if either is empty or a score is not a number.
double area_under_curve(std::vector<float> positives, std::vector<float> negatives);

/// Scores of a sample: 1 with two classes, else one for each class; 0 if the target is a number.
int64_t score_columns(const FeaturePlan& plan);

/// Records [rows, 1 + score_columns]: the class, then the scores as float32. `outputs` [rows, width] are
/// logits, `targets` class numbers.
void write_scores(const FeaturePlan& plan, int64_t rows, int64_t width, const double* outputs,
                  const double* targets, float* records);

/// Keeps the scores of part `part` of `parts` of the columns, so that the ranks share the work and the
/// memory.
class ScoreRanking {
 public:
  ScoreRanking(int64_t columns, int64_t part, int64_t parts);
  void reserve(int64_t samples);
  void add(std::span<const float> records);

  /// For each column its area, then for each whether it has one: 0 and 0 where it hasn't and for other parts'
  /// columns. What several parts give adds up.
  std::vector<double> areas() const;
  /// The mean of those that there are; NaN if there is none.
  static double mean(std::span<const double> areas);

 private:
  int64_t columns_;
  std::vector<int64_t> mine_;
  std::vector<float> classes_;
  std::vector<std::vector<float>> scores_;  // of each of `mine_`
};

}  // namespace troika
