#include <gtest/gtest.h>

#include "troika/trace/draw.h"

namespace troika {
namespace {

size_t count(const std::string& text, const std::string& word) {
  size_t found = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

const Trace kTwoRanks{2, {{0, {Op::forward, 0, 0}, 0.0, 0.25}, {1, {Op::backward, 0, 0}, 0.5, 1.0}}};

TEST(DrawSvg, EverySpanOnceAtItsPlace) {
  const std::string svg = draw_svg({kTwoRanks}, {"two ranks"});
  EXPECT_EQ(count(svg, "<title>"), 2u);
  EXPECT_EQ(count(svg, ">0F0</text>"), 1u);
  EXPECT_EQ(count(svg, ">0B0</text>"), 1u);
  EXPECT_EQ(count(svg, ">rank "), 2u);
  // Half of the plot's 870 units from 70 on, a quarter wide.
  EXPECT_NE(svg.find("<rect x=\"70.00\" y=\"30.00\" width=\"217.50\""), std::string::npos) << svg;
  EXPECT_NE(svg.find("<rect x=\"505.00\" y=\"62.00\" width=\"435.00\""), std::string::npos) << svg;
}

TEST(DrawSvg, TracesShareTheTimeAxis) {
  const Trace longer{1, {{0, {Op::forward, 0, 0}, 0.0, 2.0}}};
  const std::string svg = draw_svg({kTwoRanks, longer}, {"a", "b"});
  EXPECT_NE(svg.find("width=\"108.75\""), std::string::npos) << svg;  // 0.25 s of 2 s now
}

TEST(DrawSvg, TitlesAreEscapedAndNothingIsFine) {
  EXPECT_NE(draw_svg({Trace{}}, {"a < b & c"}).find("a &lt; b &amp; c"), std::string::npos);
  EXPECT_EQ(draw_svg({}, {}).substr(0, 4), "<svg");
}

}  // namespace
}  // namespace troika
