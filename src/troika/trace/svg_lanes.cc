// The lanes of the figure: boxes, their labels, and what is seen between them.
#include <algorithm>
#include <map>

#include "troika/base/error.h"
#include "troika/trace/look.h"
#include "troika/trace/svg_parts.h"

namespace troika {
namespace {

constexpr double kNarrow = 0.3;  // below this a box can't be seen; neighbours are drawn as one

constexpr double kSmallFont = 8;  // the smallest that is read without a glass

enum class LabelStyle { whole, operation, micro_batch };

struct Labels {
  LabelStyle style = LabelStyle::operation;
  double font = 12;
};

std::string label_of(const Action& action, LabelStyle style) {
  if (is_message(action.op)) return "";
  if (style == LabelStyle::whole) return to_string(action);
  const std::string letter(letters(action.op)), number = std::to_string(action.micro_batch);
  if (is_whole_stage(action.op)) return letter;
  if (style == LabelStyle::operation) return letter + number;
  return is_pass(action.op) ? number : letter;
}

// A character of the monospaced font is 0.6 of its size wide.
bool label_fits(const std::string& label, double font, double width) {
  return width >= 0.6 * font * static_cast<double>(label.size()) + 2;
}

// The most telling labels that fit in three quarters of the passes. Where every lane has one stage, its name
// says which, so the label doesn't.
Labels choose_labels(const std::vector<TraceLane>& lanes, const SvgPlot& plot, double font) {
  std::vector<Labels> choices;
  for (const LabelStyle style : {LabelStyle::whole, LabelStyle::operation, LabelStyle::micro_batch}) {
    if (style == LabelStyle::whole && most_chunks(lanes) == 1) continue;
    for (const double smaller : {0.0, 2.0}) choices.push_back({style, font - smaller});
  }
  for (const Labels& choice : choices) {
    size_t passes = 0, fitting = 0;
    for (const TraceLane& lane : lanes) {
      for (const Span& span : lane.spans) {
        if (!is_pass(span.action.op) || !takes_time(span)) continue;
        const double width = plot.x(span.end_s) - plot.x(span.start_s);
        ++passes;
        fitting += label_fits(label_of(span.action, choice.style), choice.font, width) ? 1 : 0;
      }
    }
    if (4 * fitting >= 3 * passes) return choice;
  }
  return {LabelStyle::micro_batch, std::min(font, kSmallFont)};
}

// One lane on its way into the picture.
class LaneDrawing {
 public:
  LaneDrawing(const TraceLane& lane, const SvgPlot& plot, double top, double height, const Labels& labels)
      : lane_(lane), plot_(plot), top_(top), height_(height), labels_(labels) {}

  std::string draw(int number, const SvgOptions& options, bool dense) {
    for (const Span& span : lane_.spans) {
      if (!takes_time(span)) continue;
      const double width = plot_.x(span.end_s) - plot_.x(span.start_s);
      if (dense && width < kNarrow) {
        add_narrow(span);
        continue;
      }
      flush_narrow();
      if (dense) {
        add_to_path(fill(span.action), plot_.x(span.start_s), width, span.action.op);
      } else {
        add_box(span, number, options);
      }
      add_label(span.action, plot_.x(span.start_s), width);
      covered_until_ = std::max(covered_until_, span.end_s);
    }
    flush_narrow();
    std::string out =
        boxes_.empty() ? "" : "<g stroke=\"#ffffff\" stroke-width=\"0.8\">\n" + boxes_ + "</g>\n";
    for (const auto& [colour, path] : paths_) {
      out += fmt::format("<path fill=\"{}\" d=\"{}\"/>\n", colour, path);
    }
    return out + texts_;
  }

 private:
  std::string fill(const Action& action) const {
    return fill_of(action.op, lane_.chunk_of(action.stage), static_cast<int>(lane_.stages.size()));
  }

  // Messages that take time are thin; what runs within or beside an earlier action leaves its top to be seen.
  double inset(const Span& span) const {
    if (is_message(span.action.op)) return height_ * 0.32;
    return span.start_s < covered_until_ ? height_ * 0.25 : 0;
  }

  void add_box(const Span& span, int number, const SvgOptions& options) {
    const double width = std::max(0.5, plot_.x(span.end_s) - plot_.x(span.start_s));
    const double less = inset(span);
    const double bottom_less = is_message(span.action.op) ? less : 0;
    boxes_ += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"{}>"
        "<title>{} ({}) on {} {}: {} from {}</title></rect>\n",
        plot_.x(span.start_s), top_ + less, width, height_ - less - bottom_less, fill(span.action),
        width < 3 ? " stroke=\"none\"" : "", svg_text(to_string(span.action)), name_of(span.action.op),
        svg_text(options.lane_name), number, duration_text(span.end_s - span.start_s, options.seconds),
        duration_text(span.start_s, options.seconds));
  }

  void add_to_path(const std::string& colour, double x, double width, Op op) {
    const double less = is_message(op) ? height_ * 0.32 : 0;
    // A hairline of what lies behind stays between two boxes that are wide enough.
    const double drawn = width > 3 ? width - 0.6 : width;
    paths_[colour] += fmt::format("M{:.2f} {:.1f}h{:.2f}v{:.1f}h-{:.2f}z", x, top_ + less, drawn,
                                  height_ - 2 * less, drawn);
  }

  void add_label(const Action& action, double x, double width) {
    std::string label = label_of(action, labels_.style);
    double font = labels_.font;
    if (!label_fits(label, font, width)) label = label_of(action, LabelStyle::micro_batch);
    if (!label_fits(label, font, width)) font = std::min(font, kSmallFont);
    if (label.empty() || !label_fits(label, font, width)) return;
    texts_ += fmt::format(
        "<text x=\"{:.2f}\" y=\"{:.2f}\" font-size=\"{:.3g}\" fill=\"{}\" text-anchor=\"middle\" "
        "font-family=\"monospace\" pointer-events=\"none\">{}</text>\n",
        x + width / 2, top_ + height_ / 2 + 0.35 * font, font, ink_on(fill(action)), label);
  }

  // Neighbours that are too narrow become one box in the colour that has the most of it.
  void add_narrow(const Span& span) {
    if (!narrow_.empty() && plot_.x(span.start_s) - plot_.x(narrow_until_) >= kNarrow) flush_narrow();
    if (narrow_.empty()) narrow_from_ = span.start_s;
    narrow_until_ = std::max(span.end_s, narrow_.empty() ? span.end_s : narrow_until_);
    narrow_[fill(span.action)] += span.end_s - span.start_s;
    if (plot_.x(narrow_until_) - plot_.x(narrow_from_) >= 2 * kNarrow) flush_narrow();
  }

  void flush_narrow() {
    if (narrow_.empty()) return;
    const auto most = std::max_element(narrow_.begin(), narrow_.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    const double width = std::max(kNarrow, plot_.x(narrow_until_) - plot_.x(narrow_from_));
    add_to_path(most->first, plot_.x(narrow_from_), width, Op::forward);
    narrow_.clear();
  }

  const TraceLane& lane_;
  const SvgPlot& plot_;
  double top_, height_;
  Labels labels_;
  double covered_until_ = 0;
  std::map<std::string, double> narrow_;  // seconds per colour
  double narrow_from_ = 0, narrow_until_ = 0;
  std::string boxes_, texts_;
  std::map<std::string, std::string> paths_;  // per colour
};

}  // namespace

LaneSize lane_size(int lanes) {
  if (lanes <= 8) return {26, 5, 24};
  if (lanes <= 16) return {20, 4, 16};
  if (lanes <= 32) return {14, 2, 12};
  return {10, 2, 9};
}

std::string svg_lanes(const std::vector<TraceLane>& lanes, double duration, const SvgPlot& plot, double top,
                      const SvgOptions& options, bool dense) {
  const LaneSize size = lane_size(static_cast<int>(lanes.size()));
  const Labels labels = choose_labels(lanes, plot, std::min(12.0, size.height * 0.8));
  std::string out;
  for (size_t i = 0; i < lanes.size(); ++i) {
    const double y = top + static_cast<double>(i) * size.step();
    const double font = std::min(12.0, size.height);
    out += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"url(#troika-waiting)\"/>"
        "<text x=\"{:.2f}\" y=\"{:.2f}\" font-size=\"{:.3g}\" text-anchor=\"end\" fill=\"#444444\">{} "
        "{}</text>\n",
        plot.left, y, plot.x(duration) - plot.left, size.height, plot.left - 8,
        y + size.height / 2 + 0.35 * font, font, svg_text(options.lane_name), i);
    out += LaneDrawing(lanes[i], plot, y, size.height, labels).draw(static_cast<int>(i), options, dense);
  }
  return out;
}

}  // namespace troika
