#include "troika/schedule/passes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "schedule/many_schedules.h"
#include "troika/schedule/validate.h"

namespace troika {
namespace {

Schedule parse(const std::string& text) { return parse_schedule(text, "test"); }

// The lanes alone, without the header.
std::string lanes_of(const Schedule& schedule) {
  const std::string text = to_text(schedule);
  return text.substr(text.find('\n') + 1);
}

Schedule made(const std::string& name, int lanes, int micro_batches, int chunks = 0) {
  ScheduleRequest request;
  request.lanes = lanes;
  request.micro_batches = micro_batches;
  request.chunks = chunks;
  return make_schedule(name, request);
}

void expect_valid(const Schedule& schedule, const std::string& name, int buffer_depth = kUnlimited) {
  ValidateOptions options;
  options.buffer_depth = buffer_depth;
  const Verdict verdict = validate(schedule, options);
  ASSERT_TRUE(verdict.valid()) << name << "\n" << explain(schedule, verdict.faults.front());
}

const std::string kOneFOneB = "0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n";

TEST(Passes, BackwardIsSplit) {
  const Schedule split = with_split_backward(parse(kOneFOneB));
  EXPECT_EQ(lanes_of(split), "0F0 0F1 0I0 0W0 0I1 0W1\n1F0 1I0 1W0 1F1 1I1 1W1\n");
  // The gradient leaves before the weight part; what was split already stays.
  EXPECT_EQ(
      lanes_of(with_split_backward(parse("0F0 0SF0>1 0RG0<1 0B0 0R 0O\n1RF0<0 1F0 1C0 1B0 1SG0>0 1R 1O\n"))),
      "0F0 0SF0>1 0RG0<1 0I0 0W0 0R 0O\n1RF0<0 1F0 1C0 1I0 1SG0>0 1W0 1R 1O\n");
  EXPECT_EQ(lanes_of(with_split_backward(parse("0F0 0F1 0I0 0B1 0W0\n"))), "0F0 0F1 0I0 0I1 0W1 0W0\n");
}

TEST(Passes, BackwardIsFused) {
  const Schedule mixed = parse("0F0 0F1 0I0 0B1 0W0 0R\n1F0 1I0 1F1 1W0 1B1 1R\n");
  EXPECT_EQ(lanes_of(with_fused_backward(mixed)), "0F0 0F1 0B0 0B1 0R\n1F0 1B0 1F1 1B1 1R\n");
  for (const auto& [name, schedule] : many_schedules()) {
    expect_valid(with_fused_backward(schedule), name);
    expect_valid(with_split_backward(schedule), name);
    const Schedule fused = with_fused_backward(schedule);
    ASSERT_EQ(with_fused_backward(with_split_backward(fused)), fused) << name;
  }
}

TEST(Passes, MessagesOfTwoLanes) {
  EXPECT_EQ(lanes_of(with_messages(parse(kOneFOneB))),
            "0F0 0SF0>1 0F1 0SF1>1 0RG0<1 0B0 0RG1<1 0B1\n"
            "1RF0<0 1F0 1B0 1SG0>0 1RF1<0 1F1 1B1 1SG1>0\n");
  EXPECT_EQ(lanes_of(with_messages(parse("0F0 0F1 0I0 0I1 0W0 0W1\n1F0 1I0 1F1 1W0 1B1\n"))),
            "0F0 0SF0>1 0F1 0SF1>1 0RG0<1 0I0 0RG1<1 0I1 0W0 0W1\n"
            "1RF0<0 1F0 1I0 1SG0>0 1RF1<0 1F1 1W0 1B1 1SG1>0\n");
  EXPECT_EQ(lanes_of(with_messages(parse("# kind=forward\n0F0 0F1\n1F0 1F1\n"))),
            "0F0 0SF0>1 0F1 0SF1>1\n1RF0<0 1F0 1RF1<0 1F1\n");
}

TEST(Passes, StagesOfOneLaneExchangeNone) {
  EXPECT_EQ(lanes_of(with_messages(parse("0F0 3F0 3B0 0B0\n1F0 2F0 2B0 1B0\n"))),
            "0F0 0SF0>1 3RF0<2 3F0 3B0 3SG0>2 0RG0<1 0B0\n"
            "1RF0<0 1F0 2F0 2SF0>3 2RG0<3 2B0 1B0 1SG0>0\n");
  const Schedule alone = with_messages(parse("0F0 1F0 1B0 0B0\n"));
  EXPECT_EQ(lanes_of(alone), "0F0 1F0 1B0 0B0\n");
  EXPECT_TRUE(alone.stated.messages);
}

TEST(Passes, SkippingMessagesGoInTheOrderOfTheirTargets) {
  EXPECT_EQ(lanes_of(with_messages(parse("# edges=0>1,0>2,1>2\n0F0 0B0\n1F0 1B0\n2F0 2B0\n"))),
            "0F0 0SF0>1 0SF0>2 0RG0<1 0RG0<2 0B0\n"
            "1RF0<0 1F0 1SF0>2 1RG0<2 1B0 1SG0>0\n"
            "2RF0<0 2RF0<1 2F0 2B0 2SG0>0 2SG0>1\n");
}

TEST(Passes, AReceiveStandsEarlierWhereTheOrderOfMessagesAsksForIt) {
  // Lane 1 sends gradients 0 1 2, lane 0 wants 2 first: it has to take all of them before.
  EXPECT_EQ(lanes_of(with_messages(parse("0F0 0F1 0F2 0B2 0B1 0B0\n1F0 1F1 1F2 1B0 1B1 1B2\n"))),
            "0F0 0SF0>1 0F1 0SF1>1 0F2 0SF2>1 0RG0<1 0RG1<1 0RG2<1 0B2 0B1 0B0\n"
            "1RF0<0 1F0 1RF1<0 1F1 1RF2<0 1F2 1B0 1SG0>0 1B1 1SG1>0 1B2 1SG2>0\n");
}

TEST(Passes, AReceiveStandsEarlierWhereFullBuffersAskForIt) {
  // Both lanes send two before they take any: with room for one, one of them must take one in between.
  const Schedule schedule = parse(
      "# edges=0>3,1>2\n"
      "0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1\n1F0 1F1 3F0 3F1 3B0 3B1 1B0 1B1\n");
  EXPECT_EQ(lanes_of(with_messages(schedule)),
            "0F0 0SF0>3 0F1 0SF1>3 2RF0<1 2F0 2RF1<1 2F1 2B0 2SG0>1 2B1 2SG1>1 0RG0<3 0B0 0RG1<3 0B1\n"
            "1F0 1SF0>2 1F1 3RF0<0 1SF1>2 3F0 3RF1<0 3F1 3B0 3SG0>0 3B1 1RG0<2 3SG1>0 1B0 1RG1<2 1B1\n");
}

// Runs all lanes with room for one message per directed pair of lanes, first in, first out; whatever is
// received must be what was sent and not received longest. Knows nothing of needs.h.
::testing::AssertionResult runs_with_room_for_one(const Schedule& s) {
  std::vector<size_t> next(s.lanes.size());
  std::map<std::pair<int, int>, Action> sent;
  std::set<Action> done;
  const auto lane_of = [&](int stage) { return s.lane_of_stage[static_cast<size_t>(stage)]; };
  bool progress = true;
  while (progress) {
    progress = false;
    for (size_t lane = 0; lane < s.lanes.size(); ++lane) {
      while (next[lane] < s.lanes[lane].size()) {
        const Action& action = s.lanes[lane][next[lane]];
        const bool send = action.op == Op::send_activation || action.op == Op::send_gradient;
        if (send) {
          if (!sent.try_emplace({lane_of(action.stage), lane_of(action.peer)}, action).second) break;
        } else if (is_message(action.op)) {
          const auto first = sent.find({lane_of(action.peer), lane_of(action.stage)});
          if (first == sent.end()) break;
          const Action expected{action.op == Op::receive_activation ? Op::send_activation : Op::send_gradient,
                                action.peer, action.micro_batch, action.stage};
          if (first->second != expected) {
            return ::testing::AssertionFailure()
                   << to_string(action) << " finds " << to_string(first->second);
          }
          sent.erase(first);
        }
        ++next[lane];
        progress = true;
      }
    }
  }
  for (size_t lane = 0; lane < s.lanes.size(); ++lane) {
    if (next[lane] < s.lanes[lane].size()) {
      return ::testing::AssertionFailure() << "stuck at " << to_string(s.lanes[lane][next[lane]]);
    }
  }
  return ::testing::AssertionSuccess();
}

// Every message of every edge between two lanes once, the send after its producer (nothing but messages
// between), the receive before its consumer.
void expect_messages_complete(const Schedule& s, const std::string& name) {
  size_t expected = 0, found = 0;
  for (const Edge& edge : s.edges) {
    if (s.lane_of_stage[static_cast<size_t>(edge.from)] != s.lane_of_stage[static_cast<size_t>(edge.to)]) {
      expected += (s.kind == Kind::train ? 4U : 2U) * static_cast<size_t>(s.num_micro_batches);
    }
  }
  for (const Lane& lane : s.lanes) {
    std::map<std::pair<Op, std::pair<int, int>>, size_t> place;  // of passes
    const auto place_of = [&](Op op, const Action& action) {
      const auto at = place.find({op, {action.stage, action.micro_batch}});
      return at == place.end() ? lane.size() : at->second;
    };
    for (size_t step = 0; step < lane.size(); ++step) {
      Op op = lane[step].op == Op::backward_input ? Op::backward : lane[step].op;
      place[{op, {lane[step].stage, lane[step].micro_batch}}] = step;
    }
    for (size_t step = 0; step < lane.size(); ++step) {
      const Action& action = lane[step];
      if (!is_message(action.op)) continue;
      ++found;
      const bool send = action.op == Op::send_activation || action.op == Op::send_gradient;
      const bool activation = action.op == Op::send_activation || action.op == Op::receive_activation;
      const size_t pass = place_of(activation ? Op::forward : Op::backward, action);
      if (!send) {
        ASSERT_LT(step, pass) << name << ": " << to_string(action);
        continue;
      }
      ASSERT_LT(pass, step) << name << ": " << to_string(action);
      for (size_t between = pass + 1; between < step; ++between) {
        ASSERT_TRUE(is_message(lane[between].op)) << name << ": " << to_string(action);
      }
    }
  }
  ASSERT_EQ(found, expected) << name;
}

TEST(Passes, MessagesAreCompleteAndRunWithRoomForOne) {
  int early = 0;
  for (const auto& [name, compute] : many_schedules()) {
    for (const Schedule& schedule : {compute, with_split_backward(compute), forward_only(compute)}) {
      const Schedule complete = with_messages(schedule);
      expect_messages_complete(complete, name);
      ASSERT_TRUE(runs_with_room_for_one(complete)) << name << "\n" << to_text(complete);
      expect_valid(complete, name, 1);
      ASSERT_EQ(without_messages(complete), schedule) << name;
      ASSERT_EQ(with_messages(complete), complete) << name;
      for (const Lane& lane : complete.lanes) {
        for (size_t step = 0; step + 1 < lane.size(); ++step) {
          const Op op = lane[step].op, then = lane[step + 1].op;
          if (op == Op::receive_activation && then != Op::forward && then != Op::receive_activation) ++early;
        }
      }
    }
  }
  EXPECT_GT(early, 0) << "no schedule in the list needs an early receive";
}

TEST(Passes, ReceivesStandJustBeforeTheirConsumersIn1F1B) {
  for (const char* const name : {"gpipe", "1f1b", "zb-h1", "zb-h2"}) {
    for (const int lanes : {2, 4, 7}) {
      const Schedule schedule = with_messages(made(name, lanes, 3 * lanes));
      for (const Lane& lane : schedule.lanes) {
        for (size_t step = 0; step < lane.size(); ++step) {
          const Action& action = lane[step];
          if (action.op != Op::receive_activation && action.op != Op::receive_gradient) continue;
          ASSERT_LT(step + 1, lane.size());
          const Action& consumer = lane[step + 1];
          EXPECT_EQ(consumer.stage, action.stage);
          EXPECT_EQ(consumer.micro_batch, action.micro_batch);
          EXPECT_EQ(consumer.op == Op::forward, action.op == Op::receive_activation) << name;
          EXPECT_TRUE(is_pass(consumer.op)) << name << " " << to_string(action);
        }
      }
    }
  }
}

TEST(Passes, LoadsStandBeforeTheForwardsThatNeedThem) {
  EXPECT_EQ(lanes_of(with_loads(parse("0F0 0F1 0B0 0B1\n1F0 1F1 1B0 1B1\n2F0 2B0 2F1 2B1\n"))),
            "0L0 0F0 0L1 0F1 0B0 0B1\n1F0 1F1 1B0 1B1\n2L0 2F0 2B0 2L1 2F1 2B1\n");
  EXPECT_EQ(lanes_of(with_loads(parse("0F0 0B0\n"))), "0L0 0F0 0B0\n");
  const Schedule skip = parse("# edges=0>2,1>2\n0F0 0B0\n1F0 1B0\n2F0 2B0\n");
  EXPECT_EQ(lanes_of(with_loads(skip)), "0L0 0F0 0B0\n1L0 1F0 1B0\n2L0 2F0 2B0\n");
  EXPECT_TRUE(with_loads(skip).stated.loads);
}

TEST(Passes, LoadsMayStandAhead) {
  const Schedule schedule = parse("0F0 0F1 0F2 0B0 0B1 0B2\n1F0 1B0 1F1 1B1 1F2 1B2\n");
  EXPECT_EQ(lanes_of(with_loads(schedule, 1)),
            "0L0 0L1 0F0 0L2 0F1 0F2 0B0 0B1 0B2\n1L0 1F0 1L1 1B0 1F1 1L2 1B1 1F2 1B2\n");
  EXPECT_EQ(lanes_of(with_loads(schedule, 2)),
            "0L0 0L1 0L2 0F0 0F1 0F2 0B0 0B1 0B2\n1L0 1L1 1F0 1B0 1L2 1F1 1B1 1F2 1B2\n");
  EXPECT_EQ(lanes_of(with_loads(schedule, 1'000'000)),
            "0L0 0L1 0L2 0F0 0F1 0F2 0B0 0B1 0B2\n1L0 1L1 1L2 1F0 1B0 1F1 1B1 1F2 1B2\n");
}

TEST(Passes, ReductionsFollowTheLastBackwardAndItsSends) {
  EXPECT_EQ(lanes_of(with_reductions(parse(kOneFOneB))), "0F0 0F1 0B0 0B1 0R\n1F0 1B0 1F1 1B1 1R\n");
  EXPECT_EQ(lanes_of(with_reductions(with_messages(parse("0F0 0I0 0W0\n1F0 1I0 1W0\n")))),
            "0F0 0SF0>1 0RG0<1 0I0 0W0 0R\n1RF0<0 1F0 1I0 1SG0>0 1W0 1R\n");
  EXPECT_EQ(lanes_of(with_reductions(with_messages(parse("0F0 0B0\n1F0 1B0\n")))),
            "0F0 0SF0>1 0RG0<1 0B0 0R\n1RF0<0 1F0 1B0 1SG0>0 1R\n");
  // Micro-batches in another order: the last one is what stands last.
  EXPECT_EQ(lanes_of(with_reductions(parse("0F0 0F1 0B1 0I0 1F0 1B0 1F1 1B1 0W0\n"))),
            "0F0 0F1 0B1 0I0 1F0 1B0 1F1 1B1 1R 0W0 0R\n");
}

TEST(Passes, UpdatesFollowTheirReduction) {
  EXPECT_EQ(lanes_of(with_updates(parse(kOneFOneB))), "0F0 0F1 0B0 0B1 0O\n1F0 1B0 1F1 1B1 1O\n");
  const Schedule late = parse("0F0 0F1 0B0 0B1 1F0 1F1 1B0 1B1 0R 1R\n");
  EXPECT_EQ(lanes_of(with_updates(late)), "0F0 0F1 0B0 0B1 1F0 1F1 1B0 1B1 0R 0O 1R 1O\n");
  const Schedule some = parse("# updates=2\n0F0 0B0 0O 0F1 0B1\n");
  EXPECT_EQ(lanes_of(with_updates(some)), "0F0 0B0 0O 0F1 0B1 0O\n");
  EXPECT_EQ(with_updates(some).lanes[0].back().micro_batch, 1);
  EXPECT_EQ(lanes_of(with_reductions(with_updates(some))), "0F0 0B0 0R 0O 0F1 0B1 0R 0O\n");
  EXPECT_EQ(with_updates(with_updates(some)), with_updates(some));
}

TEST(Passes, UpdatesStandLast) {
  const Schedule steps = parse("0F0 1F0 1B0 1R 1O 0B0 0R 0O\n");
  EXPECT_EQ(lanes_of(with_updates_last(steps)), "0F0 1F0 1B0 1R 0B0 0R 0O 1O\n");
  EXPECT_EQ(lanes_of(with_updates_last(whole_step(parse("0F0 0B0\n1F0 1B0\n")))),
            "0L0 0F0 0SF0>1 0RG0<1 0B0 0R 0O\n1L0 1RF0<0 1F0 1B0 1SG0>0 1R 1O\n");
  EXPECT_EQ(with_updates_last(parse(kOneFOneB)), parse(kOneFOneB));
  EXPECT_DEATH(with_updates_last(made("pipedream", 2, 2)), "2 updates: only one can be last");
}

// Each lane's actions without its updates, and the stages of the updates at its end, in order.
void expect_updates_last(const Schedule& before, const Schedule& after, const std::string& name) {
  ASSERT_EQ(after.lanes.size(), before.lanes.size()) << name;
  for (size_t lane = 0; lane < before.lanes.size(); ++lane) {
    Lane expected, updates;
    for (const Action& action : before.lanes[lane]) {
      (action.op == Op::optimizer_step ? updates : expected).push_back(action);
    }
    std::map<int, Action> by_stage;
    for (const Action& update : updates) by_stage[update.stage] = update;
    ASSERT_EQ(by_stage.size(), updates.size()) << name;
    for (const auto& [stage, update] : by_stage) expected.push_back(update);
    ASSERT_EQ(after.lanes[lane], expected) << name << ", lane " << lane;
  }
}

TEST(Passes, UpdatesStandLastInAllSchedulesOfOneUpdate) {
  int moved = 0;
  for (const auto& [name, compute] : many_schedules()) {
    if (compute.num_updates != 1) continue;
    const bool train = compute.kind == Kind::train;
    for (const Schedule& schedule :
         {compute, with_updates(compute), with_updates(with_messages(compute)),
          with_updates(with_reductions(with_split_backward(compute))), whole_step(compute),
          whole_step(with_recompute(with_split_backward(compute), {0})), whole_step(forward_only(compute))}) {
      const Schedule last = with_updates_last(schedule);
      expect_updates_last(schedule, last, name);
      expect_valid(last, name, 1);
      ASSERT_EQ(with_updates_last(last), last) << name;
      ASSERT_EQ(without_messages(last), with_updates_last(without_messages(schedule))) << name;
      if (last != schedule) ++moved;
      // What is added afterwards stays before the updates.
      const Schedule step = whole_step(last);
      expect_valid(step, name, 1);
      if (train && last.stated.updates) {
        ASSERT_EQ(with_updates_last(step), step) << name;
      }
    }
  }
  EXPECT_GT(moved, 100);
}

TEST(Passes, ForwardSchedulesHaveNoUpdates) {
  const Schedule forward = forward_only(parse(kOneFOneB));
  EXPECT_EQ(with_updates(with_reductions(forward)), forward);
  EXPECT_EQ(with_recompute(forward, {0}), forward);
}

TEST(Passes, RecomputationStandsJustBeforeTheBackward) {
  const Schedule schedule = with_recompute(parse("0F0 0F1 0I0 0B1 0W0\n1F0 1B0 1F1 1B1\n"), {0});
  EXPECT_EQ(lanes_of(schedule), "0F0 0F1 0C0 0I0 0C1 0B1 0W0\n1F0 1B0 1F1 1B1\n");
  EXPECT_EQ(schedule.recomputed, (std::vector<bool>{true, false}));
  EXPECT_EQ(lanes_of(with_recompute(schedule, {1, 0, 1})),
            "0F0 0F1 0C0 0I0 0C1 0B1 0W0\n1F0 1C0 1B0 1F1 1C1 1B1\n");
  EXPECT_EQ(with_recompute(schedule, {}), schedule);
  expect_valid(schedule, "recomputed");
  // It needs nothing from the other lane, so it doesn't wait for it.
  EXPECT_EQ(lanes_of(with_messages(with_recompute(parse("0F0 0B0\n1F0 1B0\n"), {0}))),
            "0F0 0SF0>1 0C0 0RG0<1 0B0\n1RF0<0 1F0 1B0 1SG0>0\n");
}

TEST(Passes, WeightVersionsAreCounted) {
  Schedule schedule = made("pipedream", 4, 8);
  const std::vector<int> versions = schedule.max_versions;
  schedule.max_versions.assign(4, 99);
  EXPECT_EQ(with_weight_versions(schedule).max_versions, versions);
  EXPECT_EQ(with_weight_versions(parse(kOneFOneB)).max_versions, (std::vector<int>{1, 1}));
}

TEST(Passes, FewerMicroBatchesAreTheSameScheduleMadeForFewer) {
  for (const char* const name : {"gpipe", "1f1b", "naive", "pipedream"}) {
    for (const int lanes : {1, 2, 4}) {
      for (const int count : {1, 2, 5, 8}) {
        const Schedule fewer = with_micro_batches(made(name, lanes, 8), count);
        EXPECT_EQ(to_text(with_weight_versions(fewer)),
                  to_text(with_weight_versions(made(name, lanes, count))))
            << name;
      }
    }
  }
  const Schedule stepped = whole_step(made("pipedream", 3, 6));
  const Schedule fewer = with_micro_batches(stepped, 4);
  EXPECT_EQ(fewer.num_updates, 4);
  expect_valid(fewer, "pipedream, 4 of 6", 1);
  EXPECT_EQ(lanes_of(with_micro_batches(parse("0F0 0F1 0B0 0B1 0R 0O\n"), 1)), "0F0 0B0 0R 0O\n");
  for (const auto& [name, schedule] : many_schedules()) {
    if (schedule.num_updates != 1) continue;
    expect_valid(with_micro_batches(schedule, (schedule.num_micro_batches + 1) / 2), name);
  }
}

TEST(Passes, ForwardsAlone) {
  const Schedule forward = forward_only(whole_step(with_recompute(made("pipedream", 2, 2), {0})));
  EXPECT_EQ(to_text(forward), "# kind=forward micro_batches=2 edges=0>1 versions=1,1\n0F0 0F1\n1F0 1F1\n");
  EXPECT_EQ(forward, parse(to_text(forward)));
}

TEST(Passes, AWholeStepStatesEverythingAndIsValid) {
  for (const auto& [name, compute] : many_schedules()) {
    for (const Schedule& schedule : {compute, with_recompute(with_split_backward(compute), {0})}) {
      const Schedule step = whole_step(schedule);
      expect_valid(step, name, 1);
      const bool train = schedule.kind == Kind::train;
      EXPECT_EQ(step.stated, (Stated{true, true, train, train})) << name;
      ASSERT_EQ(whole_step(step), step) << name;
    }
    expect_valid(whole_step(forward_only(compute)), name, 1);
  }
  EXPECT_EQ(lanes_of(whole_step(parse(kOneFOneB))),
            "0L0 0F0 0SF0>1 0L1 0F1 0SF1>1 0RG0<1 0B0 0RG1<1 0B1 0R 0O\n"
            "1L0 1RF0<0 1F0 1B0 1SG0>0 1L1 1RF1<0 1F1 1B1 1SG1>0 1R 1O\n");
}

}  // namespace
}  // namespace troika
