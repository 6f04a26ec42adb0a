// Bubble rates as published, from times as published: Qi et al., ICLR 2024 (arXiv:2401.10241), tables 5
// and 6. No constant of ours is in between.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "troika/schedule/catalogue.h"
#include "troika/simulate/simulate.h"

namespace troika {
namespace {

struct Row {
  const char* model;
  int stages, micro_batches;
  double forward_ms, input_ms, weight_ms, message_ms;
  double one_f_one_b, zb_h1, zb_h2;  // rates, rounded to four decimals
};

constexpr Row kRows[] = {
    {"1.5B", 8, 24, 18.522, 18.086, 9.337, 0.601, 0.2431, 0.1585, 0.1083},
    {"1.5B", 8, 32, 18.513, 18.086, 9.331, 0.626, 0.1985, 0.1242, 0.0837},
    {"1.5B", 8, 64, 18.546, 18.097, 9.321, 0.762, 0.1240, 0.0674, 0.0444},
    {"14.6B", 16, 48, 11.347, 11.248, 8.132, 0.377, 0.2552, 0.1397, 0.0672},
    {"14.6B", 16, 64, 11.307, 11.254, 8.101, 0.379, 0.2082, 0.1088, 0.0516},
    {"14.6B", 16, 128, 11.325, 11.308, 8.109, 0.378, 0.1251, 0.0576, 0.0266},
};

double bubble_rate(std::string_view name, const Row& row) {
  const Schedule schedule = make_schedule(name, {.lanes = row.stages, .micro_batches = row.micro_batches});
  const StageCost cost{.forward_s = row.forward_ms, .input_s = row.input_ms, .weight_s = row.weight_ms};
  const CostModel costs = CostModel::uniform(row.stages, cost, {.latency_s = row.message_ms});
  return summarize(schedule, simulate(schedule, costs)).bubble_rate;
}

TEST(Published, BubbleRatesAreTheMeasuredTimesSimulated) {
  for (const Row& row : kRows) {
    SCOPED_TRACE(fmt::format("{}, p = {}, m = {}", row.model, row.stages, row.micro_batches));
    const double rounding = 0.5e-4;
    EXPECT_NEAR(bubble_rate("1f1b", row), row.one_f_one_b, rounding);
    EXPECT_NEAR(bubble_rate("zb-h1", row), row.zb_h1, rounding);
    EXPECT_NEAR(bubble_rate("zb-h2", row), row.zb_h2, rounding);
  }
}

}  // namespace
}  // namespace troika
