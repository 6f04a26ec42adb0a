#include "troika/simulate/cost_model.h"

#include <gtest/gtest.h>

namespace troika {
namespace {

TEST(CostModel, ABackwardInOnePartCostsBothUnlessMeasured) {
  StageCost cost{.forward_s = 3, .input_s = 2, .weight_s = 1.5};
  const Action backward{Op::backward, 1, 0};
  EXPECT_EQ(CostModel::uniform(2, cost).seconds(backward), 3.5);
  cost.backward_s = 3.25;
  EXPECT_EQ(CostModel::uniform(2, cost).seconds(backward), 3.25);
}

TEST(CostModel, MessagesCostTheLinkAndNotTheLane) {
  CostModel costs = CostModel::uniform(3, {}, {.latency_s = 0.5, .seconds_per_byte = 0.25});
  costs.links[{0, 2}] = {.latency_s = 4, .seconds_per_byte = 0};
  EXPECT_EQ(costs.seconds({Op::send_activation, 0, 0, 1}), 0);
  EXPECT_EQ(costs.message_seconds(0, 1, 8), 2.5);
  EXPECT_EQ(costs.message_seconds(0, 2, 8), 4);
  EXPECT_EQ(costs.message_seconds(1, 1, 8), 0);
}

}  // namespace
}  // namespace troika
