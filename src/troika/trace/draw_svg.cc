// The figure: one panel per trace (lanes, and memory where it is known), a common time axis, a legend.
#include <algorithm>
#include <cmath>

#include "troika/base/error.h"
#include "troika/base/text.h"
#include "troika/trace/look.h"
#include "troika/trace/svg_parts.h"

namespace troika {
namespace {

constexpr double kWidth = 960, kTitleLine = 17, kAbovePanel = 12, kBelowTitle = 8, kMemoryHead = 22;
constexpr size_t kTitleCharacters = 100;  // of one line of the bold font
constexpr size_t kTitleLines = 3;
constexpr size_t kManySpans = 3000;  // more than these, and the picture is made of one path per colour

// One trace, looked at once.
struct Panel {
  const Trace* trace = nullptr;
  std::vector<std::string> title;  // lines
  std::vector<TraceLane> lanes;
  double duration = 0;

  double title_height() const {
    return kAbovePanel + kTitleLine * static_cast<double>(title.size()) + kBelowTitle;
  }
  double height() const {
    const LaneSize size = lane_size(trace->ranks);
    const double memory = trace->memory.empty() ? 0 : kMemoryHead + trace->ranks * size.memory_step();
    return title_height() + trace->ranks * size.step() + memory;
  }
};

// Lines of at most kTitleCharacters, cut between words where there are any.
std::vector<std::string> title_lines(const std::string& title) {
  std::vector<std::string> lines;
  std::string line;
  for (std::string word : split_text(printable(title, 4 * kTitleLines * kTitleCharacters), ' ')) {
    if (!line.empty() && characters_in(line) + 1 + characters_in(word) > kTitleCharacters) {
      lines.push_back(line);
      line.clear();
    }
    while (characters_in(word) > kTitleCharacters) {
      size_t bytes = 0;  // of the first kTitleCharacters characters: a byte 10xxxxxx goes on with one
      for (size_t seen = 0; bytes < word.size(); ++bytes) {
        if ((static_cast<unsigned char>(word[bytes]) & 0xC0) != 0x80 && ++seen > kTitleCharacters) break;
      }
      lines.push_back(word.substr(0, bytes));
      word.erase(0, bytes);
    }
    line += (line.empty() ? "" : " ") + word;
  }
  lines.push_back(line);
  if (lines.size() > kTitleLines) {
    lines.resize(kTitleLines);
    lines.back() += " ...";
  }
  return lines;
}

std::string draw_panel(const Panel& panel, const SvgPlot& plot, double top, const SvgOptions& options,
                       bool dense) {
  std::string out;
  for (size_t i = 0; i < panel.title.size(); ++i) {
    out += fmt::format("<text x=\"{:.2f}\" y=\"{:.2f}\" font-weight=\"bold\" font-size=\"13\">{}</text>\n",
                       plot.left, top + kAbovePanel + kTitleLine * (static_cast<double>(i) + 0.8),
                       svg_text(panel.title[i]));
  }
  const double lanes_top = top + panel.title_height();
  out += svg_lanes(panel.lanes, panel.duration, plot, lanes_top, options, dense);
  if (panel.trace->memory.empty()) return out;
  const double memory_top = lanes_top + panel.trace->ranks * lane_size(panel.trace->ranks).step();
  out += fmt::format(
      "<text x=\"{0:.2f}\" y=\"{1:.2f}\" font-size=\"11\" fill=\"#444444\">memory</text>"
      "<text x=\"{2:.2f}\" y=\"{1:.2f}\" font-size=\"11\" fill=\"#444444\">peak</text>\n",
      plot.left, memory_top + kMemoryHead - 8, plot.left + plot.width + 6);
  return out + svg_memory(*panel.trace, plot, memory_top + kMemoryHead, options);
}

std::string draw_axis(double top, const SvgPlot& plot, const SvgOptions& options) {
  const TimeUnit unit = unit_for(plot.seconds, options.seconds);
  std::string out = fmt::format("<path d=\"M{:.2f} {:.2f}h{:.2f}", plot.left, top, plot.width);
  std::string marks;
  const double step = round_step(plot.seconds, 12);
  for (int i = 0; i * step <= plot.seconds * (1 + 1e-9); ++i) {
    out += fmt::format("M{:.2f} {:.2f}v4", plot.x(i * step), top);
    marks += fmt::format("<text x=\"{:.2f}\" y=\"{:.2f}\">{}</text>\n", plot.x(i * step), top + 17,
                         mark_text(i * step, step, unit));
  }
  return out + "\" fill=\"none\" stroke=\"#666666\"/>\n<g text-anchor=\"middle\" fill=\"#444444\">\n" +
         marks +
         fmt::format("<text x=\"{:.2f}\" y=\"{:.2f}\">time{}{}</text>\n</g>\n", plot.left + plot.width / 2,
                     top + 33, unit.name.empty() ? "" : " in ", unit.name);
}

// Wide enough for the longest lane name in 12 units high letters.
double left_margin(const std::vector<Panel>& panels, const SvgOptions& options) {
  int ranks = 1;
  for (const Panel& panel : panels) ranks = std::max(ranks, panel.trace->ranks);
  const size_t letters = characters_in(svg_text(options.lane_name)) + 1 + std::to_string(ranks - 1).size();
  return std::clamp(16 + 6.6 * static_cast<double>(letters), 56.0, kWidth / 3);
}

}  // namespace

std::string svg_text(const std::string& text) {
  std::string out;
  for (const char c : printable(text, text.size() * 4)) {
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

size_t characters_in(const std::string& text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string svg_legend(const std::set<Op>& ops, int chunks, const SvgPlot& plot, double top,
                       const SvgOptions& options, double& height) {
  std::string out;
  double x = plot.left, y = top;
  const auto add = [&](const std::vector<std::string>& fills, const std::string& text) {
    const double swatches = 16 * static_cast<double>(fills.size());
    const double width = swatches + 6 + 6.3 * static_cast<double>(text.size()) + 14;
    if (x > plot.left && x + width > kWidth) {
      x = plot.left;
      y += 20;
    }
    for (size_t i = 0; i < fills.size(); ++i) {
      out += fmt::format("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"14\" height=\"14\" fill=\"{}\"/>",
                         x + 16 * static_cast<double>(i), y, fills[i]);
    }
    out += fmt::format("<text x=\"{:.2f}\" y=\"{:.2f}\" fill=\"#222222\">{}</text>\n", x + swatches + 4,
                       y + 11, text);
    x += width;
  };
  for (const Op op : ops) add({fill_of(op)}, fmt::format("{} {}", letters(op), name_of(op)));
  add({"url(#troika-waiting)"}, options.seconds ? "waiting" : "bubble");
  if (chunks > 1 && !ops.empty()) {
    const Op op = ops.count(Op::forward) ? Op::forward : *ops.begin();
    add({fill_of(op, 0, 2), fill_of(op, 1, 2)}, "darker: a later stage of the lane");
  }
  height = y + 20 - top;
  return out;
}

std::string draw_svg(const std::vector<Trace>& traces, const std::vector<std::string>& titles,
                     const SvgOptions& options) {
  TROIKA_ASSERT(traces.size() == titles.size(),
                fmt::format("{} traces, {} titles", traces.size(), titles.size()));
  std::vector<Panel> panels;
  std::set<Op> ops;
  double shown = 0, panels_height = 0;
  size_t spans = 0;
  int chunks = 1;
  bool memory = false;
  for (size_t i = 0; i < traces.size(); ++i) {
    panels.push_back({&traces[i], title_lines(titles[i]), lanes_of(traces[i]), traces[i].duration_s()});
    shown = std::max(shown, panels[i].duration);
    panels_height += panels[i].height();
    spans += traces[i].spans.size();
    chunks = std::max(chunks, most_chunks(panels[i].lanes));
    memory = memory || !traces[i].memory.empty();
    for (const Span& span : traces[i].spans) {
      if (takes_time(span)) ops.insert(span.action.op);
    }
  }
  if (shown <= 0) shown = 1;  // an empty trace still gets a figure
  SvgPlot plot{left_margin(panels, options), 0, shown};
  plot.width = kWidth - plot.left - (memory ? 76 : 22);
  std::string body;
  double top = 0;
  for (const Panel& panel : panels) {
    body += draw_panel(panel, plot, top, options, spans > kManySpans);
    top += panel.height();
  }
  body += draw_axis(top + 3, plot, options);
  double legend_height = 0;
  body += svg_legend(ops, chunks, plot, top + 50, options, legend_height);
  const double height = std::ceil(top + 50 + legend_height + 6);
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
             "font-family=\"sans-serif\" font-size=\"12\">\n"
             "<defs><pattern id=\"troika-waiting\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" "
             "patternTransform=\"rotate(45)\"><rect width=\"5\" height=\"5\" fill=\"#f8f8f8\"/>"
             "<path d=\"M0 0v5\" stroke=\"#cfcfcf\"/></pattern></defs>\n"
             "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
             kWidth, height) +
         body + "</svg>\n";
}

}  // namespace troika
