// What simulate() says against what can be known without it: closed forms where there are some, a second
// simulation with rules of its own everywhere else, and laws that hold for any times.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "support/naive_simulation.h"
#include "troika/base/error.h"
#include "troika/schedule/catalogue.h"
#include "troika/schedule/passes.h"
#include "troika/simulate/simulate.h"

namespace troika {
namespace {

constexpr int kMostLanes = 16, kMostMicroBatches = 32;

double cost_of(std::string_view name, const ScheduleRequest& request, const StageCost& cost) {
  const Schedule schedule = make_schedule(name, request);
  return summarize(schedule, simulate(schedule, CostModel::uniform(schedule.num_stages(), cost))).cost_s;
}

TEST(ClosedForm, GpipeAndOneForwardOneBackward) {
  const StageCost cost{.forward_s = 3, .input_s = 4, .weight_s = 1};
  for (int p = 1; p <= kMostLanes; ++p) {
    for (int m = 1; m <= kMostMicroBatches; ++m) {
      for (const std::string_view name : {"gpipe", "1f1b"}) {
        ASSERT_EQ(cost_of(name, {.lanes = p, .micro_batches = m}, cost), (m + p - 1) * 8)
            << name << " p=" << p << " m=" << m;
      }
    }
  }
}

TEST(ClosedForm, Interleaved) {
  const StageCost cost{.forward_s = 2, .input_s = 3, .weight_s = 1};
  for (int p = 1; p <= kMostLanes; ++p) {
    for (int m = p; m <= kMostMicroBatches; m += p) {
      for (const int v : {1, 2, 3, 4}) {
        ASSERT_EQ(cost_of("interleaved-1f1b", {.lanes = p, .micro_batches = m, .chunks = v}, cost),
                  (m * v + p - 1) * 6)
            << "p=" << p << " m=" << m << " v=" << v;
      }
    }
  }
}

TEST(ClosedForm, ZeroBubble) {
  for (const StageCost& cost : {StageCost{}, StageCost{.forward_s = 4, .input_s = 5, .weight_s = 3},
                                StageCost{.forward_s = 4, .input_s = 4, .weight_s = 1}}) {
    const double three = cost.forward_s + cost.input_s + cost.weight_s;
    for (int p = 1; p <= kMostLanes; ++p) {
      for (int m = p; m <= kMostMicroBatches; ++m) {
        const ScheduleRequest request{.lanes = p, .micro_batches = m};
        ASSERT_EQ(cost_of("zb-h1", request, cost), m * three + (p - 1) * (three - 2 * cost.weight_s))
            << "p=" << p << " m=" << m;
        if (m < 2 * p - 1) continue;
        ASSERT_EQ(cost_of("zb-h2", request, cost), m * three + (p - 1) * (three - 3 * cost.weight_s))
            << "p=" << p << " m=" << m;
      }
    }
  }
}

struct Costs {
  std::string name;
  CostModel model;
};

// Three sets of costs; binary fractions and others.
Costs costs_of(int stages, int which) {
  if (which == 0) return {"unit", CostModel::uniform(stages, {})};
  CostModel costs = CostModel::uniform(stages, {}, {.latency_s = which == 1 ? 0.5 : 0.03});
  for (int s = 0; s < stages; ++s) {
    StageCost& cost = costs.stages[static_cast<size_t>(s)];
    cost.forward_s = which == 1 ? 1 + s * 7 % 5 * 0.25 : 0.1 * (s * 5 % 4);  // now and then 0
    cost.input_s = which == 1 ? 1 + s * 3 % 7 * 0.5 : 0.7 + 0.01 * s;
    cost.weight_s = which == 1 ? 0.5 + s % 3 : 1.9 - 0.1 * (s % 8);
    if (which == 2 && s % 2 == 0) cost.backward_s = 1.3;
    cost.output_bytes = 1 + s * 11 % 6;
    cost.load_s = 0.25 * (s % 4);
    cost.reduce_s = 0.375;
    cost.update_s = which == 1 ? 0.125 : 0.3;
  }
  costs.link.seconds_per_byte = which == 1 ? 0.125 : 0.01;
  // No harm in links of lanes that don't exist.
  for (int lane = 0; lane + 1 < stages; lane += 2) costs.links[{lane, lane + 1}] = {.latency_s = 0.75};
  return {which == 1 ? "dyadic" : "decimal", costs};
}

constexpr int kForms = 6;

// The same schedule with more or less stated.
Schedule form_of(const Schedule& bare, int which) {
  std::vector<int> every_second;
  for (int stage = 0; stage < bare.num_stages(); stage += 2) every_second.push_back(stage);
  if (which == 1) return with_messages(bare);
  if (which == 2) return whole_step(bare);
  if (which == 3) return with_messages(with_recompute(bare, every_second));
  if (which == 4) return with_updates(with_split_backward(bare));
  if (which == 5) return forward_only(bare);
  return bare;
}

bool can_be_made(const CatalogueEntry& entry, const ScheduleRequest& request, Schedule& schedule) {
  try {
    schedule = make_schedule(entry.name, request);
    return true;
  } catch (const UsageError&) {
    return false;  // fewer micro-batches than it needs
  }
}

class Catalogue : public testing::TestWithParam<std::string> {};

std::string with_underscores(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(, Catalogue, testing::ValuesIn(catalogue_names()), with_underscores);

// These are searched for the times given, which takes longer than to simulate them.
bool is_searched(std::string_view name) {
  return name == "zb-auto" || name == "zb-v" || name == "v-half" || name == "v-min";
}

// Costs and forms change from one size to the next. Of what is searched: all small sizes, a few large ones.
TEST_P(Catalogue, EverySpanIsThatOfTheSecondSimulation) {
  const CatalogueEntry& entry = catalogue_entry(GetParam());
  int cells = 0;
  for (int p = 1; p <= kMostLanes; ++p) {
    for (int m = 1; m <= kMostMicroBatches; ++m) {
      if (is_searched(entry.name) && p * m > 24 && (5 * p + 3 * m) % 64 != 0) continue;
      ScheduleRequest request{.lanes = p, .micro_batches = m};
      if (!entry.fixed_chunks) request.chunks = 1 + (p + m) % 3;
      Schedule bare;
      if (!can_be_made(entry, request, bare)) continue;
      const Costs costs = costs_of(bare.num_stages(), cells % 3);
      const Schedule schedule = form_of(bare, cells / 3 % kForms);
      const std::vector<Span> spans = simulate(schedule, costs.model).spans;
      ASSERT_EQ(spans.size(), schedule.num_actions());
      ASSERT_TRUE(spans == NaiveSimulation(schedule, costs.model).run())
          << entry.name << " p=" << p << " m=" << m << " " << costs.name << " form " << cells / 3 % kForms;
      ++cells;
    }
  }
  EXPECT_GT(cells, is_searched(entry.name) ? 60 : 300);
}

double makespan(const Schedule& schedule, const CostModel& costs) {
  return summarize(schedule, simulate(schedule, costs)).makespan_s;
}

std::vector<Schedule> forms_of(const std::string& name) {
  const Schedule bare = make_schedule(name, {.lanes = 4, .micro_batches = 9});
  std::vector<Schedule> forms;
  for (int form = 0; form < kForms; ++form) forms.push_back(form_of(bare, form));
  return forms;
}

bool is_receive(Op op) { return op == Op::receive_activation || op == Op::receive_gradient; }

// Whether every receive has only messages between it and the pass that needs it.
bool receives_stand_before_their_passes(const Schedule& schedule) {
  for (const Lane& lane : schedule.lanes) {
    for (auto at = lane.begin(); at != lane.end(); ++at) {
      if (!is_receive(at->op)) continue;
      const auto next = std::find_if(at, lane.end(), [](const Action& a) { return !is_message(a.op); });
      if (next == lane.end() || next->stage != at->stage || next->micro_batch != at->micro_batch)
        return false;
    }
  }
  return true;
}

// Messages take no lane's time, so stating them delays nobody; a receive that stands earlier makes its lane
// wait for it, and passes that could have been done before it too.
TEST_P(Catalogue, StatedMessagesDelayNobody) {
  for (const int p : {1, 2, 5, 8}) {
    for (const int m : {1, 8, 11}) {
      Schedule bare;
      if (!can_be_made(catalogue_entry(GetParam()), {.lanes = p, .micro_batches = m}, bare)) continue;
      const Schedule stated = with_messages(bare);
      const bool just_before = receives_stand_before_their_passes(stated);
      EXPECT_TRUE(just_before || catalogue_entry(GetParam()).default_chunks > 1);
      for (int which = 0; which < 3; ++which) {
        SCOPED_TRACE(fmt::format("p={} m={} costs {}", p, m, which));
        const CostModel costs = costs_of(bare.num_stages(), which).model;
        EXPECT_GE(makespan(stated, costs), makespan(bare, costs));
        EXPECT_TRUE(!just_before || makespan(stated, costs) == makespan(bare, costs));
      }
    }
  }
}

// Four times as long is exact in binary, whatever the times.
TEST_P(Catalogue, LongerTimesMakeEverythingLonger) {
  for (const Schedule& schedule : forms_of(GetParam())) {
    CostModel costs = costs_of(schedule.num_stages(), 2).model;
    Trace trace = simulate(schedule, costs);
    for (Span& span : trace.spans) span.start_s *= 4, span.end_s *= 4;
    for (StageCost& cost : costs.stages) {
      for (double* time : {&cost.forward_s, &cost.input_s, &cost.weight_s, &cost.load_s, &cost.reduce_s,
                           &cost.update_s, &cost.output_bytes}) {
        *time *= 4;
      }
      if (cost.backward_s) *cost.backward_s *= 4;
    }
    costs.link.latency_s *= 4;
    for (auto& [lanes, link] : costs.links) link.latency_s *= 4;
    EXPECT_TRUE(simulate(schedule, costs).spans == trace.spans);
  }
}

TEST_P(Catalogue, SlowerMessagesMakeNothingFaster) {
  for (const Schedule& schedule : forms_of(GetParam())) {
    CostModel costs = costs_of(schedule.num_stages(), 1).model;
    costs.links.clear();
    std::vector<Span> faster;
    for (const double latency : {0.0, 0.25, 1.0, 3.0, 40.0}) {
      costs.link.latency_s = latency;
      const std::vector<Span> spans = simulate(schedule, costs).spans;
      for (size_t i = 0; i < faster.size(); ++i) ASSERT_GE(spans[i].start_s, faster[i].start_s);
      faster = spans;
    }
  }
}

// Binary fractions, so that sums are exact in any order.
TEST_P(Catalogue, LanesAreBusyForAsLongAsTheirActionsTake) {
  for (const Schedule& schedule : forms_of(GetParam())) {
    const CostModel costs = costs_of(schedule.num_stages(), 1).model;
    const Trace trace = simulate(schedule, costs);
    const Summary summary = summarize(schedule, trace);
    double all = 0, in_spans = 0, shares = 0;
    for (const Lane& lane : schedule.lanes) {
      double busy = 0;
      for (const Action& action : lane) busy += costs.seconds(action);
      EXPECT_GE(summary.makespan_s, busy);
      all += busy;
    }
    for (const Span& span : trace.spans) in_spans += span.end_s - span.start_s;
    EXPECT_EQ(in_spans, all);
    for (const double share : summary.utilization) shares += share;
    EXPECT_NEAR(shares * summary.makespan_s, all, 1e-9);
    EXPECT_NEAR(summary.bubble_rate_makespan, 1 - shares / schedule.num_lanes(), 1e-12);
    EXPECT_LE(summary.cost_s, summary.makespan_s);
    EXPECT_GE(summary.bubble_rate, 0);
  }
}

}  // namespace
}  // namespace troika
