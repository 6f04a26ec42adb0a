// What people read and write about a partition: the table, and cuts by name.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/error_of.h"
#include "support/fuzz.h"
#include "troika/base/text.h"
#include "troika/schedule/partition.h"

namespace troika {
namespace {

using Starts = std::vector<int64_t>;

TEST(Cuts, AreFoundByName) {
  const std::vector<std::string> layers = {"embed", "block0", "block1", "head"};
  EXPECT_EQ(cuts_by_name(layers, {}), (Starts{0}));
  EXPECT_EQ(cuts_by_name(layers, {"block1"}), (Starts{0, 2}));
  EXPECT_EQ(cuts_by_name(layers, {"block0", "block1", "head"}), (Starts{0, 1, 2, 3}));
}

TEST(Cuts, SayWhatIsWrong) {
  const std::vector<std::string> layers = {"embed", "block0", "block1", "head", "twin", "twin"};
  const auto said = [&](const std::vector<std::string>& cuts) {
    return error_of([&] { cuts_by_name(layers, cuts); });
  };
  const std::string order = "; cuts name the layers that begin stages 1, 2, ..., in the model's order";
  EXPECT_EQ(said({"blok1"}),
            "cuts: there is no layer \"blok1\" (did you mean \"block1\"?); the 6 layers are embed, block0, "
            "block1, head, twin, twin");
  EXPECT_EQ(said({"embed"}), "cuts: \"embed\" is the first layer, so stage 0 begins with it" + order);
  EXPECT_EQ(said({"block0", "block0"}), "cuts: \"block0\" is given twice" + order);
  EXPECT_EQ(said({"block0", "head", "block0"}), "cuts: \"block0\" is given twice" + order);
  EXPECT_EQ(said({"head", "block1"}), "cuts: \"block1\" (layer 2) is given after \"head\" (layer 3)" + order);
  EXPECT_EQ(said({"twin"}), "cuts: two layers are named \"twin\"; give them different names");
  const std::vector<std::string> many(400, "x");
  EXPECT_EQ(error_of([&] { cuts_by_name(many, {std::string(5000, 'y')}); }),
            "cuts: there is no layer \"" + std::string(40, 'y') +
                "...\"; the 400 layers are x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, ...");
}

TEST(PartitionTable, ShowsTheArithmetic) {
  constexpr double kMb = 1024.0 * 1024;
  const std::vector<LayerCost> layers = {{"embed", 8, 40 * kMb, kMb},  {"block0", 12.5, 2 * kMb, 3 * kMb},
                                         {"block1", 12.5, kMb, kMb},   {"block2", 12.5, kMb, kMb},
                                         {"block3", 12.5, kMb, kMb},   {"norm", 0.25, 512, kMb},
                                         {"größe, m", 20, 40 * kMb, 0}};
  EXPECT_EQ(partition_table(layers, {0, 2, 6}, "ms"),
            "stage  layers                        ms    share   memory  held per micro-batch\n"
            "    0  embed, block0               20.5   26.2 %  42.0 MB                4.0 MB\n"
            "    1  block1 .. norm (4 layers)  37.75   48.2 %   3.0 MB                4.0 MB\n"
            "    2  \"größe, m\"                    20   25.6 %  40.0 MB                   0 B\n"
            "  sum  7 layers                   78.25  100.0 %  85.0 MB                8.0 MB\n"
            "pace: stage 1, 37.75 ms x 3 stages / 78.25 ms = 1.45 (1: all stages equal)\n");
  EXPECT_EQ(partition_table({{"", 1'234'567.0}}, {0}, "parameters"),
            "stage  layers   parameters    share  memory\n"
            "    0  \"\"        1,234,567  100.0 %     0 B\n"
            "  sum  1 layer   1,234,567  100.0 %     0 B\n"
            "pace: stage 0, 1,234,567 parameters x 1 stage / 1,234,567 parameters = 1.00 (1: all stages "
            "equal)\n");
  const std::string idle = partition_table({{"a"}, {"b"}}, {0, 1}, "s");
  EXPECT_TRUE(idle.ends_with("pace: no work, nothing to balance\n")) << idle;
}

TEST(PartitionTable, TakesAnyNames) {
  FuzzRandom random(6);
  const std::vector<std::string> pieces = {"", ",", " ", "\"", "ä", "層", "\n", "\xFF", "{}", "block", "%"};
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<LayerCost> layers(1 + random.below(12));
    std::vector<std::string> names;
    for (LayerCost& layer : layers) {
      for (size_t piece = random.below(random.below(20) == 0 ? 3000 : 6); piece-- > 0;) {
        layer.name += random.one_of(pieces);
      }
      layer.work = random.one_of(std::vector<double>{0, 1, 5e-324, 1e300, 0.1, 1234.5, 999.99});
      layer.bytes = random.one_of(std::vector<double>{0, 1, 1e300, 1e9});
      names.push_back(layer.name);
    }
    const int stages = static_cast<int>(1 + random.below(layers.size()));
    const Starts starts = partition(layers, {.stages = stages}).starts;
    const std::string text = partition_table(layers, starts, "ms");
    ASSERT_EQ(std::ranges::count(text, '\n'), stages + 3) << text;
    ASSERT_TRUE(is_utf8(text)) << text;
    error_of([&] { cuts_by_name(names, {random.one_of(names), random.one_of(pieces)}); });
  }
}

TEST(PartitionTable, WantsStagesThatExist) {
  const std::vector<LayerCost> layers(2);
  for (const Starts& wrong : {Starts{1}, {0, 0}, {0, 2}, {0, -1}}) {
    EXPECT_DEATH(partition_table(layers, wrong, "ms"), "begins with layer");
  }
  EXPECT_DEATH(partition_table(layers, {}, "ms"), "no stages");
}

}  // namespace
}  // namespace troika
