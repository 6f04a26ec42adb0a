#include "troika/train/encoder.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "troika/base/error.h"

namespace troika {
namespace {

constexpr int64_t kNull = std::numeric_limits<int64_t>::min();
constexpr double kDay = 86400, kYear = 365.2425 * 86400;

double angle(double seconds, double period) {
  return 2 * std::numbers::pi * (seconds / period - std::floor(seconds / period));
}

/// Calls use(row, value) for every row; a null comes as NaN, a timestamp in seconds.
template <typename Use>
void for_column(const Dataset& dataset, const RowBuffer& rows, Storage storage, int index, bool timestamp,
                const Use& use) {
  if (storage == Storage::floats) {
    const float* at = rows.floats.data() + index;
    for (int64_t row = 0; row < rows.rows; ++row, at += dataset.float_columns)
      use(row, static_cast<double>(*at));
    return;
  }
  const int64_t* at = rows.ints.data() + index;
  for (int64_t row = 0; row < rows.rows; ++row, at += dataset.int_columns) {
    const double value = *at == kNull ? std::numeric_limits<double>::quiet_NaN()
                         : timestamp  ? static_cast<double>(*at) * 1e-9
                                      : static_cast<double>(*at);
    use(row, value);
  }
}

void encode_float(const FloatInput& input, const Dataset& dataset, const RowBuffer& rows, int64_t stride,
                  float* out) {
  const auto each = [&](const auto& encode) {
    for_column(dataset, rows, input.storage, input.index, input.timestamp, [&](int64_t row, double value) {
      out[row * stride] = std::isnan(value) ? 0.0F : static_cast<float>(encode(value));
    });
  };
  switch (input.encoding) {
    case Encoding::standardised: {
      const double scale = 1 / input.deviation;
      return each([&](double value) { return (value - input.mean) * scale; });
    }
    case Encoding::boolean:
      return each([](double value) { return value; });
    case Encoding::mask:
      return for_column(
          dataset, rows, input.storage, input.index, input.timestamp,
          [&](int64_t row, double value) { out[row * stride] = std::isnan(value) ? 1.0F : 0.0F; });
    case Encoding::sin_day:
      return each([](double value) { return std::sin(angle(value, kDay)); });
    case Encoding::cos_day:
      return each([](double value) { return std::cos(angle(value, kDay)); });
    case Encoding::sin_year:
      return each([](double value) { return std::sin(angle(value, kYear)); });
    case Encoding::cos_year:
      return each([](double value) { return std::cos(angle(value, kYear)); });
  }
}

[[noreturn]] void null_target(const TargetColumn& target) {
  fail(
      "target {} is null in a row that was chosen for training or evaluation; run `troika data check` on the "
      "dataset",
      target.column);
}

}  // namespace

const char* name_of(Encoding encoding) {
  switch (encoding) {
    case Encoding::standardised:
      return "standardised";
    case Encoding::boolean:
      return "boolean";
    case Encoding::mask:
      return "mask";
    case Encoding::sin_day:
      return "sin_day";
    case Encoding::cos_day:
      return "cos_day";
    case Encoding::sin_year:
      return "sin_year";
    case Encoding::cos_year:
      return "cos_year";
  }
  return "";
}

void encode_inputs(const FeaturePlan& plan, const Dataset& dataset, const RowBuffer& rows, float* floats,
                   int64_t* categories) {
  const auto width = static_cast<int64_t>(plan.floats.size());
  for (int64_t i = 0; i < width; ++i)
    encode_float(plan.floats[static_cast<size_t>(i)], dataset, rows, width, floats + i);
  const auto count = static_cast<int64_t>(plan.categories.size());
  for (int64_t i = 0; i < count; ++i) {
    const CategoryInput& input = plan.categories[static_cast<size_t>(i)];
    for_column(dataset, rows, Storage::floats, input.index, false, [&](int64_t row, double code) {
      categories[row * count + i] = std::isnan(code) ? 0 : static_cast<int64_t>(code) + 1;
    });
  }
}

void raw_targets(const FeaturePlan& plan, const Dataset& dataset, const RowBuffer& rows, double* targets) {
  const int64_t width = plan.target_width();
  for (int64_t i = 0; i < width; ++i) {
    const TargetColumn& target = plan.targets[static_cast<size_t>(i)];
    for_column(dataset, rows, target.storage, target.index, false, [&](int64_t row, double value) {
      if (std::isnan(value)) null_target(target);
      targets[row * width + i] = value;
    });
  }
}

void encode_targets(const FeaturePlan& plan, const Dataset& dataset, const RowBuffer& rows, float* targets) {
  TROIKA_ASSERT(plan.kind != TargetKind::classes, "classes are whole numbers");
  const int64_t width = plan.target_width();
  for (int64_t i = 0; i < width; ++i) {
    const TargetColumn& target = plan.targets[static_cast<size_t>(i)];
    const double scale = 1 / target.deviation;
    for_column(dataset, rows, target.storage, target.index, false, [&](int64_t row, double value) {
      if (std::isnan(value)) null_target(target);
      targets[row * width + i] = static_cast<float>((value - target.mean) * scale);
    });
  }
}

void encode_classes(const FeaturePlan& plan, const Dataset& dataset, const RowBuffer& rows,
                    int64_t* classes) {
  TROIKA_ASSERT(plan.kind != TargetKind::number, "numbers have no classes");
  const TargetColumn& target = plan.targets[0];
  for_column(dataset, rows, target.storage, target.index, false, [&](int64_t row, double value) {
    if (std::isnan(value)) null_target(target);
    classes[row] = static_cast<int64_t>(value);
  });
}

}  // namespace troika
