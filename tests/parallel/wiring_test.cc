// What each stage has and what goes along each edge, on examples and on random lists, and what is refused.
#include "troika/parallel/wiring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "support/error_of.h"
#include "support/fuzz.h"

namespace troika::test {
namespace {

using Names = std::vector<std::string>;

Layer plain(std::string name) { return {std::move(name), {}}; }

// Put at 0: got in its own stage, in the next one, in the last one and there twice.
TEST(Wiring, SendsASkipStraightToEachStageThatGetsIt) {
  const std::vector<Layer> layers{plain("a").put("x"), plain("b").get("x").put("y"), plain("c").get("x"),
                                  plain("d"),          plain("e").get("x").get("y"), plain("f").get("x")};
  const Wiring wiring = wire(layers, {0, 2, 3, 4});
  EXPECT_EQ(wiring.edges, (std::vector<Edge>{{0, 1}, {0, 3}, {1, 2}, {2, 3}}));
  const std::vector<StageWiring> expected{
      {0, {0, 2}, {}, {{1, true, {"x"}}, {3, false, {"x", "x", "y"}}}},
      {1, {2, 3}, {{0, true, {"x"}}}, {{2, true, {}}}},
      {2, {3, 4}, {{1, true, {}}}, {{3, true, {}}}},
      {3, {4, 6}, {{0, false, {"x", "x", "y"}}, {2, true, {}}}, {}},
  };
  EXPECT_EQ(wiring.stages, expected);
  EXPECT_EQ(layers_of(layers, wiring.stages[3])[1].name, "f");
  EXPECT_EQ(layers_of(layers, wiring.stages[3]).size(), 2u);
}

// By places in the list, whatever the order of the gets.
TEST(Wiring, SkipsOfAMessageAreInTheOrderOfTheirPuts) {
  const Wiring wiring = wire(
      {plain("a").put("z").put("m"), plain("b").put("a"), plain("c"), plain("d").get("a").get("m").get("z")},
      {0, 2, 3});
  EXPECT_EQ(wiring.stages[0].out[1], (StageEdge{2, false, {"z", "m", "a"}}));
}

TEST(Wiring, OneStageHasNoEdges) {
  const Wiring wiring = wire({plain("a").put("x"), plain("b").get("x")}, {0});
  EXPECT_TRUE(wiring.edges.empty());
  EXPECT_EQ(wiring.stages, (std::vector<StageWiring>{{0, {0, 2}, {}, {}}}));
}

TEST(Wiring, ListsTiesInTheOrderOfTheirUsers) {
  const Wiring wiring = wire({plain("a"), plain("b"), plain("c").tie("w", "b", "v"),
                              plain("d").tie("w", "a", "u").tie("x", "b", "v")},
                             {0, 2});
  const std::vector<Tied> expected{{2, "w", 1, "v"}, {3, "w", 0, "u"}, {3, "x", 1, "v"}};
  EXPECT_EQ(wiring.ties, expected);
}

struct RandomList {
  std::vector<Layer> layers;
  std::vector<int64_t> starts{0};
};

RandomList random_list(FuzzRandom& random) {
  RandomList list;
  const size_t count = 1 + random.below(12);
  for (size_t i = 0; i < count; ++i) list.layers.push_back(plain("layer" + std::to_string(i)));
  for (size_t i = 0; i + 1 < count; ++i) {
    for (size_t puts = random.below(3); puts > 0; --puts) {
      const std::string name = "skip" + std::to_string(random.below(1000000));
      bool got = false;
      for (size_t j = i + 1; j < count; ++j) {
        if (random.below(3) > 0) continue;
        list.layers[j].get(name);
        got = true;
      }
      if (!got) list.layers[i + 1 + random.below(count - i - 1)].get(name);
      list.layers[i].put(name);
    }
    if (random.below(3) == 0) list.starts.push_back(static_cast<int64_t>(i) + 1);
  }
  return list;
}

void expect_ascending(const std::vector<StageEdge>& edges) {
  for (size_t i = 1; i < edges.size(); ++i) EXPECT_LT(edges[i - 1].stage, edges[i].stage);
}

TEST(Wiring, EveryGetIsServedExactlyOnce) {
  size_t across = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    FuzzRandom random(seed);
    const auto [layers, starts] = random_list(random);
    const Wiring wiring = wire(layers, starts);
    ASSERT_EQ(wiring.stages.size(), starts.size());
    int64_t covered = 0;
    std::set<Edge> edges;
    for (const StageWiring& stage : wiring.stages) {
      EXPECT_EQ(stage.layers.begin, covered);
      EXPECT_GT(stage.layers.size(), 0);
      covered = stage.layers.end;
      expect_ascending(stage.in);
      expect_ascending(stage.out);
      std::set<std::string> put_here;
      std::map<std::string, int> arrives;
      for (const StageEdge& edge : stage.in) {
        EXPECT_EQ(edge.chain, edge.stage + 1 == stage.stage);
        EXPECT_TRUE(edge.chain || !edge.skips.empty()) << "an edge that carries nothing";
        EXPECT_TRUE(edges.insert({edge.stage, stage.stage}).second);
        for (const std::string& skip : edge.skips) ++arrives[skip];
        // The other end says the same.
        const auto& out = wiring.stages[static_cast<size_t>(edge.stage)].out;
        EXPECT_EQ(std::count(out.begin(), out.end(), StageEdge{stage.stage, edge.chain, edge.skips}), 1);
        for (const std::string& skip : edge.skips) {
          const std::vector<Layer> senders =
              layers_of(layers, wiring.stages[static_cast<size_t>(edge.stage)]);
          EXPECT_TRUE(std::any_of(senders.begin(), senders.end(), [&](const Layer& l) {
            return std::count(l.puts.begin(), l.puts.end(), skip) == 1;
          })) << skip;
        }
      }
      if (stage.stage > 0) {
        EXPECT_TRUE(edges.contains({stage.stage - 1, stage.stage}));
      }
      std::map<std::string, int> gets;
      for (const Layer& layer : layers_of(layers, stage)) {
        for (const std::string& skip : layer.gets) {
          ++gets[skip];
          EXPECT_NE(arrives[skip] > 0, put_here.contains(skip)) << skip;
        }
        put_here.insert(layer.puts.begin(), layer.puts.end());
      }
      // Once for each layer that gets it: no gradient is added before its turn.
      for (const auto& [skip, times] : arrives) EXPECT_TRUE(times == 0 || times == gets[skip]) << skip;
      across += arrives.size();
    }
    EXPECT_EQ(covered, static_cast<int64_t>(layers.size()));
    EXPECT_EQ(wiring.edges, std::vector<Edge>(edges.begin(), edges.end()));
  }
  EXPECT_GT(across, 500u) << "the lists must have skips between stages";
}

std::string refused(const std::vector<Layer>& layers, const std::vector<int64_t>& starts = {0}) {
  EXPECT_THROW(wire(layers, starts), UsageError);
  return error_of([&] { wire(layers, starts); });
}

TEST(Wiring, RefusesSkipsThatDontMeet) {
  EXPECT_EQ(refused({}), "the model has no layer: give at least one (name, factory)");
  EXPECT_EQ(refused({plain("a"), plain("a")}),
            "two layers are called \"a\": weights are saved and seeded by name, so give each its own");
  EXPECT_EQ(refused({plain("a").put("image"), plain("b").get("imag")}),
            "layer \"b\" gets \"imag\", which no earlier layer puts (did you mean \"image\"?)");
  EXPECT_EQ(refused({plain("a").get("x"), plain("b").put("x")}),
            "layer \"a\" gets \"x\", but layer \"b\", which puts it, isn't earlier");
  EXPECT_EQ(refused({plain("a").put("x").get("x")}),
            "layer \"a\" gets \"x\", but layer \"a\", which puts it, isn't earlier");
  EXPECT_EQ(refused({plain("a").put("x"), plain("b").put("x"), plain("c").get("x")}),
            "layers \"a\" and \"b\" both put \"x\": give one of them another name");
  EXPECT_EQ(refused({plain("a").put("x"), plain("b")}),
            "layer \"a\" puts \"x\", and no later layer gets it: leave it out, or get it");
}

TEST(Wiring, RefusesTiesThatHaveNoFirstUse) {
  EXPECT_EQ(refused({plain("embed"), plain("b").tie("w", "embd", "v")}),
            "layer \"b\" ties \"w\" to \"v\" of layer \"embd\", but there is no such layer (did you mean "
            "\"embed\"?)");
  const std::string later = "which isn't an earlier layer";
  EXPECT_NE(refused({plain("a").tie("w", "b", "v"), plain("b")}).find(later), std::string::npos);
  EXPECT_NE(refused({plain("a").tie("w", "a", "v")}).find(later), std::string::npos);
  EXPECT_EQ(
      refused({plain("a"), plain("b").tie("w", "a", "v"), plain("c").tie("w", "b", "w")}),
      "layer \"c\" ties \"w\" to \"w\" of layer \"b\", which is tied itself: tie both to the first of them");
  EXPECT_EQ(refused({plain("a"), plain("b").tie("w", "a", "v").tie("w", "a", "u")}),
            "layer \"b\" ties \"w\" to \"u\" of layer \"a\", but \"w\" is tied already");
}

TEST(Wiring, RefusesStartsThatLeaveAStageEmpty) {
  const std::vector<Layer> layers{plain("a"), plain("b"), plain("c")};
  EXPECT_EQ(refused(layers, {}), "stage 0 must start at layer 0, not at none: there is no stage");
  EXPECT_EQ(refused(layers, {1, 2}), "stage 0 must start at layer 0, not at layer 1");
  EXPECT_EQ(refused(layers, {0, 2, 2}),
            "stage 1 starts at layer 2 and stage 2 at layer 2: 2 - 2 = 0 layers for stage 1, which needs at "
            "least one");
  EXPECT_NE(refused(layers, {0, 2, 1}).find("1 - 2 = -1 layers for stage 1"), std::string::npos);
  EXPECT_EQ(refused(layers, {0, 3}),
            "stage 1 starts at layer 3, but there are 3 layers, 0 to 2: 2 stages need at least 2 layers");
}

// What Model is given: a piece, whose other ends are elsewhere.
TEST(Wiring, PiecesAreCheckedWithTheirBorders) {
  EXPECT_NO_THROW(check_layers({plain("b").get("x").put("y")}, {{"x"}, {"y"}}));
  EXPECT_NO_THROW(check_layers({plain("b").tie("w", "elsewhere", "v")}));
  EXPECT_THROW(check_layers({plain("b").get("x").put("y")}, {{"x"}, {}}), UsageError);
  EXPECT_THROW(check_layers({plain("b").get("x").put("y")}, {{}, {"y"}}), UsageError);
  EXPECT_EQ(error_of([] {
              check_layers({plain("b").put("x"), plain("c").get("x")}, {{"x"}, {}});
            }),
            "layer \"b\" puts \"x\", which an earlier part of the model puts too");
}

}  // namespace
}  // namespace troika::test
