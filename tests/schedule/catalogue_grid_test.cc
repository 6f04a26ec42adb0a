// The catalogue's schedules with closed rules, for every small number of lanes and micro-batches.
#include <gtest/gtest.h>

#include <map>

#include "schedule/pass_run.h"
#include "troika/base/error.h"
#include "troika/schedule/catalogue.h"
#include "troika/schedule/liveness.h"
#include "troika/schedule/passes.h"
#include "troika/schedule/validate.h"

namespace troika {
namespace {

constexpr int kLanes = 16, kMicroBatches = 32, kChunks = 4;
constexpr std::array kNames = {"naive", "gpipe", "1f1b",       "interleaved-1f1b", "looped-bfs",
                               "zb-h1", "zb-h2", "dualpipe-v", "pipedream",        "pipedream-2bw"};

std::string to_string(const ScheduleRequest& request) {
  return fmt::format("{} lanes, {} micro-batches, {} chunks", request.lanes, request.micro_batches,
                     request.chunks);
}

// Calls `check` with the request and what is made of it, wherever it can be made.
template <typename Check>
void for_each_request(std::string_view name, const Check& check) {
  const CatalogueEntry& entry = catalogue_entry(name);
  const int most_chunks = entry.fixed_chunks ? entry.default_chunks : kChunks;
  for (int chunks = entry.fixed_chunks ? most_chunks : 1; chunks <= most_chunks; ++chunks) {
    for (int lanes = 1; lanes <= kLanes; ++lanes) {
      for (int micro_batches = 1; micro_batches <= kMicroBatches; ++micro_batches) {
        if (name == "pipedream-2bw" && micro_batches < lanes) continue;
        const ScheduleRequest request = {.lanes = lanes, .micro_batches = micro_batches, .chunks = chunks};
        check(request, make_schedule(name, request));
      }
    }
  }
}

class CatalogueGrid : public testing::TestWithParam<const char*> {};

TEST_P(CatalogueGrid, EveryPassOnceInAnOrderThatCanRun) {
  const CatalogueEntry& entry = catalogue_entry(GetParam());
  for_each_request(GetParam(), [&](const ScheduleRequest& request, const Schedule& schedule) {
    ASSERT_EQ(run_passes(schedule, {}).wrong, "") << to_string(request);
    ASSERT_EQ(schedule.num_lanes(), request.lanes);
    ASSERT_EQ(schedule.num_stages(), request.lanes * request.chunks);
    if (!entry.asynchronous) {
      ASSERT_EQ(schedule.num_micro_batches, request.micro_batches);
      ASSERT_EQ(schedule.max_versions, std::vector<int>(schedule.lane_of_stage.size(), 1));
    }
    for (const Lane& lane : schedule.lanes) {
      for (const auto& [op, stage, micro_batch, peer] : lane) {
        ASSERT_TRUE(is_pass(op) || (entry.asynchronous && op == Op::optimizer_step)) << to_string(request);
        const bool a_part = op == Op::backward_input || op == Op::backward_weight;
        ASSERT_TRUE(entry.splits_backward || !a_part) << to_string(request);
      }
    }
  });
}

TEST_P(CatalogueGrid, ValidatorAgrees) {
  for_each_request(GetParam(), [&](const ScheduleRequest& request, const Schedule& schedule) {
    const Verdict verdict = validate(schedule);
    ASSERT_TRUE(verdict.valid()) << to_string(request) << ": " << verdict.faults.front().reason;
  });
}

TEST_P(CatalogueGrid, EvaluationRunsTheForwards) {
  for_each_request(GetParam(), [&](const ScheduleRequest& request, const Schedule& schedule) {
    if (request.micro_batches % 5 != 1) return;
    const Schedule forward = make_forward_schedule(GetParam(), request);
    ASSERT_EQ(forward.kind, Kind::forward);
    ASSERT_EQ(forward.num_updates, 1);
    ASSERT_EQ(run_passes(forward, {}).wrong, "") << to_string(request);
    ASSERT_EQ(forward.num_actions(), static_cast<size_t>(schedule.num_stages() * schedule.num_micro_batches));
  });
}

// A new schedule comes under this test by standing in the catalogue.
TEST(CatalogueWhole, EverySmallScheduleRuns) {
  for (const CatalogueEntry& entry : catalogue()) {
    for (int lanes = 1; lanes <= 5; ++lanes) {
      for (const int micro_batches : {1, 2, 3, 5, 8}) {
        if (entry.name == "pipedream-2bw" && micro_batches < lanes) continue;
        const ScheduleRequest request = {.lanes = lanes, .micro_batches = micro_batches};
        const Schedule schedule = make_schedule(entry.name, request);
        ASSERT_EQ(run_passes(schedule, {}).wrong, "") << entry.name << ": " << to_string(request);
        ASSERT_TRUE(validate(schedule).valid()) << entry.name << ": " << to_string(request);
        ASSERT_EQ(make_schedule(entry.name, request), schedule) << entry.name << ": " << to_string(request);
      }
    }
  }
}

std::string test_name(const testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::erase(name, '-');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, CatalogueGrid, testing::ValuesIn(kNames), test_name);

TEST(CatalogueDualPipeV, FewMicroBatchesAreThoseOfTwoPerLaneWithoutTheRest) {
  for (int lanes = 1; lanes <= kLanes; ++lanes) {
    const Schedule whole = make_schedule("dualpipe-v", {.lanes = lanes, .micro_batches = 2 * lanes});
    for (int micro_batches = 1; micro_batches < 2 * lanes; ++micro_batches) {
      ASSERT_EQ(make_schedule("dualpipe-v", {.lanes = lanes, .micro_batches = micro_batches}),
                with_micro_batches(whole, micro_batches))
          << lanes << " lanes, " << micro_batches << " micro-batches";
    }
  }
}

// The most that a lane holds, in micro-batches.
double peak(const Schedule& schedule) {
  double most = 0;
  for (const LanePeaks& peaks : lane_peaks(schedule)) most = std::max(most, peaks.held);
  return most;
}

TEST(CatalogueMemory, IsWhatThePapersSay) {
  const auto check = [](std::string_view name, const auto& expected) {
    for_each_request(name, [&](const ScheduleRequest& request, const Schedule& schedule) {
      const double p = request.lanes, m = request.micro_batches, v = request.chunks;
      ASSERT_NEAR(peak(schedule), expected(p, m, v), 1e-9) << name << ": " << to_string(request);
    });
  };
  check("naive", [](double, double, double) { return 1; });
  check("gpipe", [](double, double m, double) { return m; });
  check("1f1b", [](double p, double m, double) { return std::min(p, m); });
  check("looped-bfs", [](double, double m, double) { return m; });
  check("zb-h1", [](double p, double m, double) { return std::min(p, m); });
  check("zb-h2", [](double p, double m, double) { return std::min(2 * p - 1, m); });
  check("dualpipe-v", [](double p, double m, double) { return std::min(p + 0.5, m); });
  check("pipedream", [](double p, double m, double) { return std::min(p, m); });
  check("pipedream-2bw", [](double p, double, double) { return p; });
}

TEST(CatalogueMemory, OfInterleaved) {
  for_each_request("interleaved-1f1b", [](const ScheduleRequest& request, const Schedule& schedule) {
    const double p = request.lanes, m = request.micro_batches, v = request.chunks;
    const double most = v == 1 ? std::min(p, m) : std::min(p + (p - 1) / v, m);
    if (request.micro_batches % request.lanes == 0) {
      ASSERT_NEAR(peak(schedule), most, 1e-9) << to_string(request);
    } else {  // without the surplus of the last group there is never more
      ASSERT_LE(peak(schedule), most + 1e-9) << to_string(request);
    }
  });
}

// The version of a forward: the updates of its stage before it in the lane.
std::map<Action, int> versions(const Lane& lane) {
  std::map<Action, int> of;
  int version = 0;
  for (const Action& action : lane) {
    if (action.op == Op::optimizer_step) ++version;
    if (action.op == Op::forward) of[action] = version;
  }
  return of;
}

TEST(CatalogueVersions, PipeDreamLagsByTheStagesThatFollow) {
  for_each_request("pipedream", [](const ScheduleRequest& request, const Schedule& schedule) {
    EXPECT_TRUE(schedule.stated.updates);
    EXPECT_EQ(schedule.num_updates, request.micro_batches);
    for (int stage = 0; stage < request.lanes; ++stage) {
      const int later = request.lanes - 1 - stage;
      const Lane& lane = schedule.lanes[static_cast<size_t>(stage)];
      for (const auto& [forward, version] : versions(lane)) {
        ASSERT_EQ(forward.micro_batch - version, std::min(forward.micro_batch, later)) << to_string(request);
      }
      const int held = schedule.max_versions[static_cast<size_t>(stage)];
      ASSERT_LE(held, std::min(later + 1, request.micro_batches)) << to_string(request);
      if (request.micro_batches > 2 * later) {
        ASSERT_EQ(held, later + 1) << to_string(request);
      }
    }
  });
}

TEST(CatalogueVersions, DoubleBufferedLagsByOneUpdateEverywhere) {
  for_each_request("pipedream-2bw", [](const ScheduleRequest& request, const Schedule& schedule) {
    EXPECT_TRUE(schedule.stated.updates);
    EXPECT_EQ(schedule.num_updates, 3);
    ASSERT_EQ(schedule.num_micro_batches, 3 * request.micro_batches);
    for (const Lane& lane : schedule.lanes) {
      for (const auto& [forward, version] : versions(lane)) {
        ASSERT_EQ(version, std::max(0, forward.micro_batch / request.micro_batches - 1))
            << to_string(request);
      }
      int backwards = 0, updates = 0;
      for (const Action& action : lane) {
        backwards += action.op == Op::backward;
        if (action.op != Op::optimizer_step) continue;
        ASSERT_EQ(action.micro_batch, updates++) << to_string(request);
        ASSERT_GE(backwards, (action.micro_batch + 1) * request.micro_batches) << to_string(request);
      }
      ASSERT_EQ(updates, 3) << to_string(request);
    }
    // The last stage has no forwards on the way when it updates.
    std::vector<int> two(schedule.lanes.size(), 2);
    two.back() = 1;
    ASSERT_EQ(schedule.max_versions, two) << to_string(request);
  });
}

TEST(CatalogueRefusals, OnlyDoubleBufferedRefusesAndOnlyFewerMicroBatchesThanStages) {
  for (const char* name : kNames) {
    for (int lanes = 1; lanes <= kLanes; ++lanes) {
      for (int micro_batches = 1; micro_batches <= kMicroBatches; ++micro_batches) {
        bool refused = false;
        try {
          make_schedule(name, {.lanes = lanes, .micro_batches = micro_batches});
        } catch (const UsageError&) {
          refused = true;
        }
        ASSERT_EQ(refused, name == std::string_view("pipedream-2bw") && micro_batches < lanes)
            << name << ": " << lanes << " lanes, " << micro_batches << " micro-batches";
      }
    }
  }
}

}  // namespace
}  // namespace troika
