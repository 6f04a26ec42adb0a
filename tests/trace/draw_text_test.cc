#include <gtest/gtest.h>

#include "trace/traces.h"
#include "troika/base/text.h"
#include "troika/trace/draw.h"
#include "troika/trace/text_columns.h"

namespace troika {
namespace {

TextOptions plain(int width) { return {width, false, false, "lane"}; }

// Tables begin on a line of their own.
std::string table(const std::string& text) { return text.substr(1); }

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines = split_text(text, '\n');
  EXPECT_EQ(lines.back(), "");
  lines.pop_back();
  return lines;
}

std::string without_colours(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\x1b') {
      at = text.find('m', at);
    } else {
      out += text[at];
    }
  }
  return out;
}

// 1F1B, 4 lanes, 8 micro-batches, a backward takes two forwards: 33 units.

TEST(DrawText, OneColumnAUnit) {
  EXPECT_EQ(draw_text(one_f_one_b(4, 8), plain(60)), table(R"(
time   |0        |10       |20       |30
lane 0 FFFF......B0FB1FB2FB3FB4.B5.B6.B7
lane 1 .FFF....B0FB1FB2FB3FB4FB5.B6.B7..
lane 2 ..FF..B0FB1FB2FB3FB4FB5FB6.B7....
lane 3 ...FB0FB1FB2FB3FB4FB5FB6FB7......
F forward  B backward  . bubble  33 in all
)"));
}

TEST(DrawText, TwoColumnsAUnit) {
  EXPECT_EQ(draw_text(one_f_one_b(4, 8), plain(80)), table(R"(
time   |0        |5        |10       |15       |20       |25       |30
lane 0 F0F1F2F3............B0- F4B1- F5B2- F6B3- F7B4- ..B5- ..B6- ..B7-
lane 1 ..F0F1F2........B0- F3B1- F4B2- F5B3- F6B4- F7B5- ..B6- ..B7- ....
lane 2 ....F0F1....B0- F2B1- F3B2- F4B3- F5B4- F6B5- F7B6- ..B7- ........
lane 3 ......F0B0- F1B1- F2B2- F3B3- F4B4- F5B5- F6B6- F7B7- ............
F forward  B backward  . bubble  33 in all
)"));
}

TEST(DrawText, ThreeColumnsAUnitAreEnough) {
  const std::string text = draw_text(one_f_one_b(4, 8), plain(140));
  EXPECT_EQ(text, table(R"(
time   |0             |5             |10            |15            |20            |25            |30
lane 0 F0 F1 F2 F3 ..................B0--- F4 B1--- F5 B2--- F6 B3--- F7 B4--- ...B5--- ...B6--- ...B7---
lane 1 ...F0 F1 F2 ............B0--- F3 B1--- F4 B2--- F5 B3--- F6 B4--- F7 B5--- ...B6--- ...B7--- ......
lane 2 ......F0 F1 ......B0--- F2 B1--- F3 B2--- F4 B3--- F5 B4--- F6 B5--- F7 B6--- ...B7--- ............
lane 3 .........F0 B0--- F1 B1--- F2 B2--- F3 B3--- F4 B4--- F5 B5--- F6 B6--- F7 B7--- ..................
F forward  B backward  . bubble  33 in all
)"));
  EXPECT_EQ(draw_text(one_f_one_b(4, 8), plain(400)), text);
}

TEST(DrawText, ASecondStageOfALaneIsInLowerCase) {
  const Trace vee = trace_of({"0F0 3F0 3I0 3W0 0I0 0W0", "1F0 2F0 2I0 2W0 1I0 1W0"});
  EXPECT_EQ(draw_text(vee, plain(80)), table(R"(
time   |0             |5
lane 0 F0 ......f0 i0 w0 ......I0 W0
lane 1 ...F0 f0 ......i0 w0 I0 W0 ...
F forward  I backward, input part  W backward, weight part  . bubble
lower case: a later stage of the lane  10 in all
)"));
}

TEST(DrawText, OfMoreStagesTheLabelNamesOne) {
  const Trace loop = trace_of({"0F0 1F0 2F0 2B0 1B0 0B0"});
  EXPECT_EQ(draw_text(loop, plain(80)), table(R"(
time   |0                  |5
lane 0 0F0 1F0 2F0 2B0---- 1B0---- 0B0----
F forward  B backward  . bubble  lower case: a later stage of the lane  9 in all
)"));
}

TEST(DrawText, WhatDoesNotFitGoesOnBelow) {
  EXPECT_EQ(draw_text(one_f_one_b(2, 10), plain(28)), table(R"(
time 0 .. 20
time   |0        |10
lane 0 FF..B0FB1FB2FB3FB4FB
lane 1 .FB0FB1FB2FB3FB4FB5F
time 20 .. 33
time   |20       |30
lane 0 -FB6FB7FB8.B9
lane 1 B6FB7FB8FB9..
F forward  B backward
. bubble  33 in all
)"));
}

// 1545 units in 93 columns: more than six blocks. A third of the busy time is forwards.
TEST(DrawText, WhatIsMuchTooLongIsShownInProportion) {
  const std::vector<std::string> lines = lines_of(draw_text(one_f_one_b(4, 512), plain(100)));
  ASSERT_EQ(lines.size(), 6u);
  for (size_t lane = 1; lane <= 4; ++lane) {
    const std::string cells = lines[lane].substr(7);
    EXPECT_EQ(cells.size(), 93u);
    const auto of = [&](char c) { return std::count(cells.begin(), cells.end(), c); };
    EXPECT_NEAR(of('F'), 93 * 512 / 1545.0, 1.5);
    EXPECT_NEAR(of('B'), 93 * 1024 / 1545.0, 1.5);
    EXPECT_EQ(of('F') + of('B') + of('.'), 93);
  }
  EXPECT_NE(lines[5].find("letters in proportion to the time they take"), std::string::npos);
}

TEST(DrawText, MeasuredTimesAreToScale) {
  Trace trace{2, {}};
  for (int rank = 0; rank < 2; ++rank) {
    double at = 1e-6 * rank;
    for (const auto& [action, seconds] : std::vector<std::pair<std::string, double>>{
             {"0L0", 20.3e-6}, {"0F0", 234.1e-6}, {"0B0", 423.7e-6}, {"0R", 6.9e-6}, {"0O", 20.7e-6}}) {
      trace.spans.push_back({rank, parse_action(action), at, at + seconds});
      at += seconds;
    }
  }
  trace.spans.push_back({1, parse_action("0SF0>1"), 100e-6, 150e-6});  // within the forward
  EXPECT_EQ(draw_text(trace, {100}), table(R"(
us     |0           |100         |200         |300          |400         |500         |600
rank 0 L0 F0--------------------------- B0----------------------------------------------------- RO-
rank 1 L0 F0------- SF0--- F0----------- B0---------------------------------------------------- RO-
L load  F forward  B backward  R reduce gradients  O optimizer step  SF send activation  . waiting
707 us in all
)"));
}

TEST(DrawText, OddTimesAreNotSpreadWiderThanTheirLabelsNeed) {
  const std::vector<std::string> lines = lines_of(draw_text(one_f_one_b(2, 2, {1, 1.3717}), plain(400)));
  // The last backward of lane 0 ends at 3 (1 + 1.3717), 7.1151, at 3 columns a unit.
  EXPECT_EQ(lines[1].size(), 7 + 22u);
}

// Whatever is one column wide is seen, wherever it stands against the columns.
TEST(TextColumns, AColumnWideIsSeen) {
  const Action forward{Op::forward, 0, 0}, backward{Op::backward, 0, 0};
  const auto shown = [](const std::vector<Span>& spans) {
    return columns_of({spans, {0}}, ColumnScale{1, 3, false});
  };
  EXPECT_EQ(shown({{0, forward, 0.5, 1.5}}), (std::vector<int>{0, 0, -1}));
  for (double at = 0; at <= 1.5; at += 0.125) {
    const std::vector<int> columns =
        shown({{0, forward, 0, at}, {0, backward, at, at + 1}, {0, forward, at + 1, 3}});
    EXPECT_NE(std::find(columns.begin(), columns.end(), 1), columns.end()) << at;
  }
}

TEST(DrawText, NoLineIsLongerThanAsked) {
  Trace odd = one_f_one_b(3, 12, {18.522e-3, 27.423e-3});
  odd.spans.push_back({0, parse_action("0SF0>1"), 0.3, 0.3});
  const std::vector<Trace> traces = {one_f_one_b(4, 8),
                                     one_f_one_b(1, 1),
                                     one_f_one_b(12, 40),
                                     one_f_one_b(100, 3),
                                     odd,
                                     trace_of({"0F0 1F0 2F0 2I0 2W0 1I0 1W0 0I0 0W0"}),
                                     Trace{2, {}}};
  for (const Trace& trace : traces) {
    for (int width = 20; width < 150; width += 18) {
      for (const bool seconds : {false, true}) {
        const std::string text = draw_text(trace, {width, false, seconds, "a rather long name"});
        for (const std::string& line : lines_of(text)) {
          EXPECT_LE(line.size(), static_cast<size_t>(width)) << line;
          for (const char c : line) EXPECT_TRUE(c >= ' ' && c <= '~') << line;
        }
        for (const std::string& line : lines_of(draw_text(trace, {width, true, seconds, "lane"}))) {
          EXPECT_LE(without_colours(line).size(), static_cast<size_t>(width)) << line;
        }
      }
    }
  }
  EXPECT_EQ(draw_text(one_f_one_b(4, 8), plain(-5)), draw_text(one_f_one_b(4, 8), plain(20)));
}

TEST(DrawText, ColoursSayTheLetterWhereThereIsNoRoom) {
  TextOptions options = plain(60);
  options.colour = true;
  const std::vector<std::string> lines = lines_of(draw_text(one_f_one_b(4, 16), options));
  EXPECT_EQ(without_colours(lines[2]).substr(0, 19), "lane 0 0123......B0");
  EXPECT_EQ(lines[2].substr(7, 22), "\x1b[48;5;117m\x1b[38;5;16m0");
  EXPECT_NE(lines[2].find("\x1b[48;5;215m\x1b[38;5;16mB0\x1b[0m"), std::string::npos);
  EXPECT_NE(lines.back().find("\x1b[48;5;117m\x1b[38;5;16mF\x1b[0m forward"), std::string::npos);
}

TEST(DrawText, NothingIsFine) {
  EXPECT_EQ(draw_text(Trace{2, {}}, plain(80)), "lane 0\nlane 1\nnothing takes time\n");
  EXPECT_EQ(draw_text(Trace{1, {{0, {Op::forward, 0, 0}, 3, 3}}}, plain(80)), table(R"(
time   |0
lane 0 ..
. bubble  3 in all
)"));
}

}  // namespace
}  // namespace troika
