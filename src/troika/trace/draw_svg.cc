// The figure: one panel per trace, one lane per rank, a common time axis. Colours are told apart by lightness
// too, so that a black-and-white print stays readable.
#include <algorithm>
#include <cmath>

#include "troika/base/error.h"
#include "troika/base/text.h"
#include "troika/trace/draw.h"

namespace troika {
namespace {

constexpr double kWidth = 960, kLeft = 70, kRight = 20, kLane = 26, kLaneGap = 6, kTitle = 30, kAxis = 34,
                 kLegend = 34;
constexpr double kPlotWidth = kWidth - kLeft - kRight;
constexpr double kLetterWidth = 7.5;  // of the notation's font, to know whether a label fits in its box

const char* colour(Op op) {
  switch (op) {
    case Op::load:
      return "#d9d9d9";
    case Op::forward:
      return "#7fb3e6";
    case Op::recompute:
      return "#b3d4f2";
    case Op::backward:
      return "#2f6fb5";
    case Op::backward_input:
      return "#4c9085";
    case Op::backward_weight:
      return "#a8d5a2";
    case Op::reduce_gradients:
      return "#f2c14e";
    case Op::optimizer_step:
      return "#d1603d";
    case Op::send_activation:
    case Op::receive_activation:
    case Op::send_gradient:
    case Op::receive_gradient:
      return "#888888";
  }
  return "#000000";
}

const char* ink(Op op) { return op == Op::backward || op == Op::optimizer_step ? "#ffffff" : "#222222"; }

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

double panel_height(const Trace& trace) { return kTitle + trace.ranks * (kLane + kLaneGap); }

std::string draw_span(const Span& span, double top, double seconds_shown) {
  const double x = kLeft + span.start_s / seconds_shown * kPlotWidth;
  const double width = std::max(0.5, (span.end_s - span.start_s) / seconds_shown * kPlotWidth);
  const double y = top + span.rank * (kLane + kLaneGap);
  const std::string label = to_string(span.action);
  std::string out = fmt::format(
      "<g><title>{} ({}) on rank {}: {} from {}</title>"
      "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\" stroke=\"#ffffff\" "
      "stroke-width=\"0.5\"/>",
      label, name_of(span.action.op), span.rank, human_seconds(span.end_s - span.start_s),
      human_seconds(span.start_s), x, y, width, kLane, colour(span.action.op));
  if (width > kLetterWidth * static_cast<double>(label.size()) + 2) {
    out += fmt::format("<text x=\"{:.2f}\" y=\"{:.2f}\" class=\"op\" fill=\"{}\">{}</text>", x + width / 2,
                       y + kLane / 2 + 4, ink(span.action.op), label);
  }
  return out + "</g>\n";
}

// 1, 2 or 5 times a power of ten, so that an axis gets between four and ten marks.
double round_step(double span) {
  const double power = std::pow(10.0, std::floor(std::log10(span / 4)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    if (span / (factor * power) <= 10) return factor * power;
  }
  return 10 * power;
}

std::string draw_axis(double top, double seconds_shown) {
  std::string out = fmt::format("<line x1=\"{0}\" y1=\"{1}\" x2=\"{2}\" y2=\"{1}\" stroke=\"#888888\"/>\n",
                                kLeft, top, kWidth - kRight);
  const double step = round_step(seconds_shown);
  for (double at = 0; at <= seconds_shown * 1.0001; at += step) {
    const double x = kLeft + at / seconds_shown * kPlotWidth;
    out += fmt::format(
        "<line x1=\"{0:.2f}\" y1=\"{1}\" x2=\"{0:.2f}\" y2=\"{2}\" stroke=\"#888888\"/>"
        "<text x=\"{0:.2f}\" y=\"{3}\" class=\"tick\">{4}</text>\n",
        x, top, top + 4, top + 18, at == 0 ? "0" : human_seconds(at));
  }
  return out;
}

std::string draw_legend(double top) {
  std::string out;
  double x = kLeft;
  for (const Op op : {Op::load, Op::forward, Op::backward, Op::reduce_gradients, Op::optimizer_step}) {
    const std::string text = fmt::format("{} {}", letters(op), name_of(op));
    out += fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"14\" height=\"14\" fill=\"{}\"/>"
        "<text x=\"{}\" y=\"{}\">{}</text>\n",
        x, top, colour(op), x + 20, top + 11, text);
    x += 20 + 7.5 * static_cast<double>(text.size()) + 18;
  }
  return out + fmt::format("<text x=\"{}\" y=\"{}\">white: waiting</text>\n", x, top + 11);
}

}  // namespace

double Trace::duration_s() const {
  double end = 0;
  for (const Span& span : spans) end = std::max(end, span.end_s);
  return end;
}

std::string draw_svg(const std::vector<Trace>& traces, const std::vector<std::string>& titles,
                     const SvgOptions& options) {
  TROIKA_ASSERT(traces.size() == titles.size(),
                fmt::format("{} traces, {} titles", traces.size(), titles.size()));
  double shown = 0, height = kAxis + kLegend;
  for (const Trace& trace : traces) {
    shown = std::max(shown, trace.duration_s());
    height += panel_height(trace);
  }
  if (shown <= 0) shown = 1;  // an empty trace still gets a figure
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1:.0f}\" width=\"{0}\" "
      "height=\"{1:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<style>.op{{text-anchor:middle;font-family:monospace}}.tick{{text-anchor:middle;fill:#555555}}"
      ".title{{font-weight:bold;font-size:13px}}.lane{{text-anchor:end;fill:#555555}}</style>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
      kWidth, height);
  double top = 0;
  for (size_t i = 0; i < traces.size(); ++i) {
    out += fmt::format("<text x=\"{}\" y=\"{}\" class=\"title\">{}</text>\n", kLeft, top + 20,
                       escaped(titles[i]));
    for (int rank = 0; rank < traces[i].ranks; ++rank) {
      const double y = top + kTitle + rank * (kLane + kLaneGap);
      out += fmt::format(
          "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#cccccc\"/>"
          "<text x=\"{}\" y=\"{}\" class=\"lane\">rank {}</text>\n",
          kLeft, y, kPlotWidth, kLane, kLeft - 8, y + kLane / 2 + 4, rank);
    }
    for (const Span& span : traces[i].spans) out += draw_span(span, top + kTitle, shown);
    top += panel_height(traces[i]);
  }
  return out + draw_axis(top + 4, shown) + draw_legend(top + kAxis + 6) + "</svg>\n";
}

}  // namespace troika
