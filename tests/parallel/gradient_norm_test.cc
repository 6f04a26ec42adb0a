#include "troika/parallel/gradient_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace troika {
namespace {

FlatLayout layout_of_sizes(const std::vector<int64_t>& sizes, int64_t element_bytes) {
  std::vector<FlatLayout::Entry> entries;
  for (const int64_t size : sizes) entries.push_back({"p" + std::to_string(entries.size()), {size}, 0, 0});
  return make_flat_layout(entries, element_bytes);
}

/// Random gradients of `ranks` ranks for each parameter.
template <typename T>
struct Gradients {
  Gradients(const FlatLayout& layout, size_t ranks) : layout(layout), ranks(ranks) {
    std::mt19937 random(3);
    std::normal_distribution<double> normal;
    for (const auto& entry : layout.entries) {
      for (size_t r = 0; r < ranks; ++r) {
        numbers.emplace_back();
        for (int64_t i = 0; i < entry.size; ++i) numbers.back().push_back(static_cast<T>(normal(random)));
      }
    }
    for (const auto& of_rank : numbers) pointers.push_back(of_rank.data());
  }

  std::vector<double> sums(const std::vector<Range>& slices, double weight) const {
    std::vector<double> out(static_cast<size_t>(count_norm_blocks(layout)), -1);
    for (const Range& slice : slices) add_norm_blocks(layout, sizeof(T) == 8, weight, pointers, slice, out);
    return out;
  }

  long double naive_norm(double weight) const {
    long double squares = 0;
    for (size_t i = 0; i < layout.entries.size(); ++i) {
      for (size_t k = 0; k < static_cast<size_t>(layout.entries[i].size); ++k) {
        T sum = 0;
        for (size_t r = 0; r < ranks; ++r) {
          if (pointers[i * ranks + r] != nullptr) sum += numbers[i * ranks + r][k];
        }
        const T mean = sum / static_cast<T>(weight);
        squares += static_cast<long double>(mean) * mean;
      }
    }
    return std::sqrt(squares);
  }

  const FlatLayout layout;
  const size_t ranks;
  std::vector<std::vector<T>> numbers;
  std::vector<const void*> pointers;
};

template <typename T>
void expect_the_same_bits_for_any_slices() {
  const FlatLayout layout = layout_of_sizes({1, 4096, 33, 4097, 40000, 4095, 8192}, sizeof(T));
  EXPECT_EQ(count_norm_blocks(layout), 1 + 1 + 1 + 2 + 10 + 1 + 2);
  for (const size_t ranks : {size_t{1}, size_t{2}, size_t{3}}) {
    const Gradients<T> gradients(layout, ranks);
    for (const double weight : {7.0, 64.0}) {
      const auto whole = gradients.sums({{0, layout.total}}, weight);
      const double norm = norm_of(squares_of_parameters(layout, whole)).norm;
      EXPECT_NEAR(norm, static_cast<double>(gradients.naive_norm(weight)), 1e-14 * norm);
      for (const int parts : {2, 3, 5, 64}) {
        std::vector<Range> slices;
        for (int k = parts; k-- > 0;) slices.push_back(slice_of_rank(layout, parts, k));
        EXPECT_EQ(gradients.sums(slices, weight), whole) << parts;  // every block by one of them
      }
    }
  }
}

TEST(GradientNorm, AnySlicesGiveTheSameBitsInFloat) { expect_the_same_bits_for_any_slices<float>(); }
TEST(GradientNorm, AnySlicesGiveTheSameBitsInDouble) { expect_the_same_bits_for_any_slices<double>(); }

// In float32 a sum of squares would stand still at 2^24 ones.
TEST(GradientNorm, SmallSquaresBesideALargeOneCount) {
  const FlatLayout layout = layout_of_sizes({40000}, 4);
  Gradients<float> gradients(layout, 1);
  std::fill(gradients.numbers[0].begin(), gradients.numbers[0].end(), 1.0f);
  gradients.numbers[0][0] = 5000;
  EXPECT_EQ(norm_of(squares_of_parameters(layout, gradients.sums({{0, layout.total}}, 1))).norm,
            std::sqrt(5000.0 * 5000.0 + 39999));
}

TEST(GradientNorm, ParametersWithoutGradientCountNothing) {
  const FlatLayout layout = layout_of_sizes({5000, 300, 20}, 4);
  Gradients<float> gradients(layout, 2);
  gradients.pointers[2] = gradients.pointers[3] = nullptr;  // the second parameter: no rank
  gradients.pointers[5] = nullptr;                          // the third: one rank
  const GradientNorm found = norm_of(squares_of_parameters(layout, gradients.sums({{0, layout.total}}, 4)));
  EXPECT_NEAR(found.norm, static_cast<double>(gradients.naive_norm(4)), 1e-14);
  EXPECT_EQ(found.first_bad, -1);
}

TEST(GradientNorm, TheFirstParameterThatIsNotFiniteIsFound) {
  const FlatLayout layout = layout_of_sizes({5000, 300, 20}, 4);
  Gradients<float> gradients(layout, 2);
  gradients.numbers[4][19] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(norm_of(squares_of_parameters(layout, gradients.sums({{0, layout.total}}, 4))).first_bad, 2);
  gradients.numbers[3][0] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(norm_of(squares_of_parameters(layout, gradients.sums({{0, layout.total}}, 4))).first_bad, 1);
}

TEST(GradientNorm, TheScaleIsTorchs) {
  EXPECT_EQ(clip_scale(3, 1.5), 1.5 / (3 + 1e-6));
  EXPECT_EQ(clip_scale(1e-6, 1e-6), 0.5);  // a tiny gradient shows the 1e-6
  EXPECT_EQ(clip_scale(1, 1.5), 1);
  EXPECT_EQ(clip_scale(0, 1.5), 1);
  EXPECT_EQ(clip_scale(1e300, std::numeric_limits<double>::infinity()), 1);
}

}  // namespace
}  // namespace troika
