#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>

#include "trace/traces.h"
#include "trace/xml_check.h"
#include "troika/base/error.h"
#include "troika/trace/draw.h"
#include "troika/trace/look.h"

namespace troika {
namespace {

const SvgOptions kPlain{"lane", false};

size_t count(const std::string& text, const std::string& word) {
  size_t found = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
  std::string fill, title;
};

// Every rectangle, in the order it is painted.
std::vector<Box> boxes_of(const std::string& svg) {
  std::vector<Box> boxes;
  const auto value = [](const std::string& element, const std::string& name) {
    const size_t at = element.find(" " + name + "=\"");
    if (at == std::string::npos) return std::string("0");
    const size_t from = at + name.size() + 3;
    return element.substr(from, element.find('"', from) - from);
  };
  for (size_t at = svg.find("<rect x"); at != std::string::npos; at = svg.find("<rect x", at + 1)) {
    const std::string element = svg.substr(at, svg.find('>', at) - at);
    Box box{std::stod(value(element, "x")),
            std::stod(value(element, "y")),
            std::stod(value(element, "width")),
            std::stod(value(element, "height")),
            value(element, "fill"),
            ""};
    const size_t title = at + element.size() + 1;
    if (svg.compare(title, 7, "<title>") == 0) {
      box.title = svg.substr(title + 7, svg.find('<', title + 7) - title - 7);
    }
    boxes.push_back(box);
  }
  return boxes;
}

Box box_titled(const std::string& svg, const std::string& start) {
  for (const Box& box : boxes_of(svg)) {
    if (box.title.substr(0, start.size()) == start) return box;
  }
  ADD_FAILURE() << "no box of " << start;
  return {};
}

std::vector<Box> waiting_boxes(const std::string& svg) {
  std::vector<Box> out;
  for (const Box& box : boxes_of(svg)) {
    if (box.fill == "url(#troika-waiting)" && box.width != 14) out.push_back(box);
  }
  return out;
}

double lightness(const std::string& fill) {
  const auto part = [&](size_t at) { return std::stoi(fill.substr(at, 2), nullptr, 16); };
  return 0.299 * part(1) + 0.587 * part(3) + 0.114 * part(5);
}

const Trace kTwoRanks{2, {{0, {Op::forward, 0, 0}, 0.0, 0.25}, {1, {Op::backward, 0, 0}, 0.5, 1.0}}};

TEST(DrawSvg, EverySpanOnceAtItsPlace) {
  const std::string svg = draw_svg({kTwoRanks}, {"two ranks"});
  EXPECT_EQ(xml_error(svg), "");
  EXPECT_EQ(count(svg, "<title>"), 2u);
  EXPECT_EQ(count(svg, ">F0</text>"), 1u);
  EXPECT_EQ(count(svg, ">B0</text>"), 1u);
  const std::vector<Box> lanes = waiting_boxes(svg);
  ASSERT_EQ(lanes.size(), 2u);
  const Box forward = box_titled(svg, "0F0 (forward) on rank 0: 250 ms from 0");
  const Box backward = box_titled(svg, "0B0 (backward) on rank 1: 500 ms from 500 ms");
  EXPECT_NEAR(forward.x, lanes[0].x, 0.02);
  EXPECT_NEAR(forward.width, lanes[0].width / 4, 0.02);
  EXPECT_NEAR(backward.x, lanes[0].x + lanes[0].width / 2, 0.02);
  EXPECT_NEAR(backward.width, lanes[0].width / 2, 0.02);
  EXPECT_EQ(forward.y, lanes[0].y);
  EXPECT_EQ(backward.y, lanes[1].y);
  EXPECT_GE(lanes[1].y, lanes[0].y + lanes[0].height);
  EXPECT_EQ(forward.fill, fill_of(Op::forward));
  EXPECT_EQ(backward.fill, fill_of(Op::backward));
}

TEST(DrawSvg, TracesShareTheTimeAxisAndBubblesEndWithTheirTrace) {
  const Trace longer{1, {{0, {Op::forward, 0, 0}, 0.0, 2.0}}};
  const std::string svg = draw_svg({kTwoRanks, longer}, {"a", "b"});
  const std::vector<Box> lanes = waiting_boxes(svg);
  ASSERT_EQ(lanes.size(), 3u);
  EXPECT_NEAR(lanes[0].width, lanes[2].width / 2, 0.02);
  EXPECT_NEAR(box_titled(svg, "0F0 (forward) on rank 0: 250 ms").width, lanes[2].width / 8, 0.02);
  EXPECT_EQ(count(svg, "time in s<"), 1u);
}

TEST(DrawSvg, LegendNamesWhatOccurs) {
  const std::string simulated = draw_svg({one_f_one_b(2, 2)}, {"t"}, kPlain);
  EXPECT_EQ(count(simulated, ">F forward<"), 1u);
  EXPECT_EQ(count(simulated, ">B backward<"), 1u);
  EXPECT_EQ(count(simulated, ">bubble<"), 1u);
  EXPECT_EQ(count(simulated, "optimizer"), 0u);
  EXPECT_EQ(count(simulated, ">time<"), 1u);
  EXPECT_EQ(count(simulated, ">lane 1<"), 1u);
  EXPECT_EQ(count(simulated, "darker"), 0u);
  const std::string measured = draw_svg({kTwoRanks}, {"t"});
  EXPECT_EQ(count(measured, ">waiting<"), 1u);
  EXPECT_EQ(count(measured, ">rank 1<"), 1u);
}

TEST(DrawSvg, ALaterStageOfALaneIsDarkerAndNamed) {
  const std::string svg = draw_svg({trace_of({"0F0 3F0 3B0 0B0", "1F0 2F0 2B0 1B0"})}, {"vee"}, kPlain);
  EXPECT_EQ(count(svg, "darker: a later stage of the lane"), 1u);
  for (const std::string name : {"F0", "B0"}) {
    const Box first = box_titled(svg, "0" + name), last = box_titled(svg, "3" + name);
    EXPECT_GE(lightness(first.fill) - lightness(last.fill), 30) << name;
    EXPECT_EQ(box_titled(svg, "1" + name).fill, first.fill);
    EXPECT_EQ(box_titled(svg, "2" + name).fill, last.fill);
    EXPECT_EQ(count(svg, ">3" + name + "</text>"), 1u);
  }
}

TEST(Look, KindsDifferInGrey) {
  for (const int chunk : {0, 1}) {
    EXPECT_GE(lightness(fill_of(Op::forward, chunk, 2)) - lightness(fill_of(Op::backward, chunk, 2)), 60);
    EXPECT_GE(lightness(fill_of(Op::forward, chunk, 2)) - lightness(fill_of(Op::backward_input, chunk, 2)),
              60);
    EXPECT_GE(lightness(fill_of(Op::backward_weight, chunk, 2)) - lightness(fill_of(Op::forward, chunk, 2)),
              25);
    EXPECT_GE(lightness(fill_of(Op::recompute, chunk, 2)) - lightness(fill_of(Op::forward, chunk, 2)), 25);
  }
  for (const Op op : kAllOps) {
    for (int chunk = 0; chunk + 1 < 4; ++chunk) {
      EXPECT_GT(lightness(fill_of(op, chunk, 4)), lightness(fill_of(op, chunk + 1, 4))) << name_of(op);
    }
    const double ink = lightness(ink_on(fill_of(op)));
    EXPECT_GE(std::abs(ink - lightness(fill_of(op))), 90) << name_of(op);
  }
}

TEST(DrawSvg, LabelsAreAsTellingAsFits) {
  EXPECT_EQ(count(draw_svg({one_f_one_b(4, 8)}, {"t"}, kPlain), ">F7</text>"), 4u);
  const std::string narrow = draw_svg({one_f_one_b(4, 20)}, {"t"}, kPlain);  // 69 units: 12 px a forward
  EXPECT_EQ(count(narrow, ">F7</text>"), 0u);
  EXPECT_EQ(count(narrow, ">7</text>"), 8u);
  // A load's number alone would be taken for a pass.
  const Trace load{1, {{0, parse_action("0L0"), 0, 1}, {0, parse_action("0F0"), 1, 80}}};
  EXPECT_EQ(count(draw_svg({load}, {"t"}), ">L</text>"), 1u);
}

TEST(DrawSvg, MessagesWithoutWidthAreNoBoxes) {
  Trace trace{2, {{0, parse_action("0F0"), 0, 1}, {0, parse_action("0SF0>1"), 1, 1}}};
  trace.spans.push_back({1, parse_action("1RF0<0"), 1, 1});
  trace.spans.push_back({1, parse_action("1F0"), 1, 2});
  const std::string simulated = draw_svg({trace}, {"t"}, kPlain);
  EXPECT_EQ(count(simulated, "<title>"), 2u);
  EXPECT_EQ(count(simulated, "SF"), 0u);
  trace.spans[1].end_s = 1.5;
  const std::string measured = draw_svg({trace}, {"t"});
  EXPECT_EQ(count(measured, ">SF send activation<"), 1u);
  EXPECT_LT(box_titled(measured, "0SF0&gt;1").height, box_titled(measured, "0F0").height / 2);
  EXPECT_EQ(xml_error(measured), "");
}

TEST(DrawSvg, WhatRunsWithinAnotherLeavesItVisible) {
  const Trace trace{1, {{0, parse_action("0R"), 0.5, 0.9}, {0, parse_action("0B0"), 0, 1}}};
  const std::string svg = draw_svg({trace}, {"t"});
  EXPECT_LT(box_titled(svg, "0R").height, box_titled(svg, "0B0").height);
  EXPECT_LT(svg.find("0B0 ("), svg.find("0R ("));  // the outer one is painted first
  const Trace together{1, {{0, parse_action("0R"), 0, 0.5}, {0, parse_action("0B0"), 0, 1}}};
  const std::string both = draw_svg({together}, {"t"});
  EXPECT_LT(both.find("0B0 ("), both.find("0R ("));
}

TEST(DrawSvg, MemoryIsAStepCurvePerLane) {
  Trace trace = one_f_one_b(2, 2);
  trace.memory = {{{0, 100}, {1, 200}, {4, 0}}, {{1, 100}, {trace.duration_s(), 0}}};
  const std::string svg = draw_svg({trace}, {"t"}, {"lane", true});
  EXPECT_EQ(xml_error(svg), "");
  EXPECT_EQ(count(svg, ">200 B<"), 1u);
  EXPECT_EQ(count(svg, ">100 B<"), 1u);
  EXPECT_EQ(count(svg, ">lane 0<"), 2u);
  // Lane 0: half the height from 0 on, all of it from a ninth of the time on, nothing after four ninths.
  const Box lane = waiting_boxes(svg)[0];
  const size_t at = svg.find("<path d=\"M" + fmt::format("{:.2f} ", lane.x));
  ASSERT_NE(at, std::string::npos);
  double base = 0, x0 = 0, y0 = 0, x1 = 0, y1 = 0, x2 = 0, y2 = 0, x3 = 0;
  ASSERT_EQ(std::sscanf(svg.c_str() + at, "<path d=\"M%*f %lfH%lfV%lfH%lfV%lfH%lfV%lfH%lf", &base, &x0, &y0,
                        &x1, &y1, &x2, &y2, &x3),
            8);
  const double unit = lane.width / trace.duration_s();
  EXPECT_NEAR(x0, lane.x, 0.02);
  EXPECT_NEAR(x1, lane.x + unit, 0.02);
  EXPECT_NEAR(x2, lane.x + 4 * unit, 0.02);
  EXPECT_NEAR(x3, lane.x + lane.width, 0.02);
  EXPECT_NEAR(base - y1, 2 * (base - y0), 0.02);
  EXPECT_GT(base - y0, 5);
  EXPECT_NEAR(y2, base, 0.02);
  const std::string plain = draw_svg({trace}, {"t"}, kPlain);
  EXPECT_EQ(count(plain, ">200<"), 1u);
  EXPECT_EQ(count(draw_svg({one_f_one_b(2, 2)}, {"t"}, kPlain), "memory"), 0u);
}

TEST(DrawSvg, APeakTooShortToSeeIsDrawnAllTheSame) {
  Trace trace{1, {{0, {Op::forward, 0, 0}, 0, 1000}}};
  trace.memory = {{{0, 1}, {500, 100}, {500.001, 1}}};
  const std::string spike = draw_svg({trace}, {"t"}, kPlain);
  trace.memory = {{{0, 1}, {500, 100}, {600, 1}}};
  const std::string hill = draw_svg({trace}, {"t"}, kPlain);
  const auto top = [](const std::string& svg) {
    const size_t at = svg.find("V", svg.find("V", svg.find("<path d=\"M")) + 1);
    return svg.substr(at, svg.find('H', at) - at);
  };
  EXPECT_EQ(top(spike), top(hill));
}

TEST(DrawSvg, LargeSchedulesStaySmall) {
  const std::string svg = draw_svg({one_f_one_b(64, 512)}, {"large"}, kPlain);
  EXPECT_EQ(xml_error(svg), "");
  EXPECT_LT(svg.size(), 3u << 20);  // 65536 boxes
  EXPECT_EQ(count(svg, "<title>"), 0u);
  EXPECT_EQ(count(svg, ">lane 63<"), 1u);
  // Actions far below what can be seen are drawn together: no more boxes than twice the points of the
  // picture.
  const PassSeconds quick{1e-3, 2e-3};
  Trace dense = one_f_one_b(2, 20000, quick);
  const std::string merged = draw_svg({dense}, {"dense"}, kPlain);
  const size_t boxes = count(merged, "z");
  EXPECT_LT(boxes, 4000u);
  EXPECT_GT(boxes, 1000u);
}

TEST(DrawSvg, TitlesAreEscapedAndNothingIsFine) {
  EXPECT_NE(draw_svg({Trace{}}, {"a < b & c"}).find("a &lt; b &amp; c"), std::string::npos);
  const std::string hostile = std::string("x\x01\xFF<script> ") + std::string(2000, '&');
  const std::string svg = draw_svg({kTwoRanks}, {hostile}, {"<la\"ne>", false});
  EXPECT_EQ(xml_error(svg), "");
  EXPECT_EQ(count(svg, "<script>"), 0u);
  EXPECT_EQ(count(svg, "font-weight=\"bold\""), 3u);  // lines, the rest is cut
  for (const Trace& trace : {Trace{}, Trace{0, {}}, Trace{3, {}}, Trace{1, {{0, {Op::forward, 0, 0}, 0, 0}}},
                             Trace{1, {}, {{}}}, one_f_one_b(1, 3), one_f_one_b(100, 4)}) {
    EXPECT_EQ(xml_error(draw_svg({trace}, {""}, kPlain)), "") << trace.ranks;
  }
  EXPECT_EQ(draw_svg({}, {}).substr(0, 4), "<svg");
  EXPECT_EQ(count(svg, "http"), 1u);  // the namespace: nothing is fetched
}

TEST(LanesDeathTest, WrongTracesAreRefused) {
  const auto draw = [](const Trace& trace) { draw_text(trace); };
  const Action forward{Op::forward, 0, 0};
  EXPECT_DEATH(draw({1, {{1, forward, 0, 1}}}), "0F0 on rank 1 of 1");
  EXPECT_DEATH(draw({1, {{-1, forward, 0, 1}}}), "on rank -1 of 1");
  EXPECT_DEATH(draw({1, {{0, forward, -1, 1}}}), "from -1 to 1");
  EXPECT_DEATH(draw({1, {{0, forward, 2, 1}}}), "from 2 to 1");
  EXPECT_DEATH(draw({1, {{0, forward, 0, std::nan("")}}}), "from 0 to nan");
  EXPECT_DEATH(draw({1, {{0, forward, 0, std::numeric_limits<double>::infinity()}}}), "to inf");
  EXPECT_DEATH(draw({2, {}, {{}}}), "memory of 1 ranks");
  EXPECT_DEATH(draw({1, {}, {{{1, 0}, {0, 0}}}}), "memory 0 at 0 after 1");
  EXPECT_DEATH(draw_svg({Trace{}}, {}), "1 traces, 0 titles");
}

}  // namespace
}  // namespace troika
