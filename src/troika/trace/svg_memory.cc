// Memory over time: a small step curve per lane, all on one scale, so that lanes compare by eye.
#include <algorithm>
#include <cmath>

#include "troika/base/error.h"
#include "troika/base/text.h"
#include "troika/trace/svg_parts.h"

namespace troika {
namespace {

constexpr double kFinest = 0.25;  // two levels closer than this are one step, the higher one

// "H x V y" for each level, ending at `end`.
std::string steps_of(const std::vector<MemoryLevel>& levels, double end, const SvgPlot& plot, double base,
                     double units_per_byte) {
  std::string out;
  for (size_t i = 0; i < levels.size();) {
    const double x = plot.x(levels[i].at_s);
    double highest = levels[i].bytes;
    size_t next = i + 1;
    while (next < levels.size() && plot.x(levels[next].at_s) - x < kFinest) {
      highest = std::max(highest, levels[next++].bytes);
    }
    out += fmt::format("H{:.2f}V{:.2f}", x, base - highest * units_per_byte);
    const double last = levels[next - 1].bytes;
    if (last != highest) out += fmt::format("H{:.2f}V{:.2f}", x + kFinest, base - last * units_per_byte);
    i = next;
  }
  return out + fmt::format("H{:.2f}", std::max(plot.x(end), plot.left));
}

double peak_of(const std::vector<MemoryLevel>& levels) {
  double peak = 0;
  for (const MemoryLevel& level : levels) peak = std::max(peak, level.bytes);
  return peak;
}

std::string amount_text(double amount, const SvgOptions& options) {
  if (options.seconds) return human_bytes(amount);
  return amount < 1e4 ? fmt::format("{:.4g}", amount) : with_commas(std::llround(amount));
}

}  // namespace

std::string svg_memory(const Trace& trace, const SvgPlot& plot, double top, const SvgOptions& options) {
  const LaneSize size = lane_size(trace.ranks);
  double most = 0, end = trace.duration_s();
  for (const std::vector<MemoryLevel>& levels : trace.memory) {
    most = std::max(most, peak_of(levels));
    if (!levels.empty()) end = std::max(end, levels.back().at_s);
  }
  const double units_per_byte = most > 0 ? size.memory_height / most : 0;
  std::string out;
  for (size_t i = 0; i < trace.memory.size(); ++i) {
    const double y = top + static_cast<double>(i) * size.memory_step();
    const double base = y + size.memory_height;
    const double font = std::min(11.0, size.memory_height + 1);
    const double peak = peak_of(trace.memory[i]);
    out += fmt::format(
        "<path d=\"M{:.2f} {:.2f}{}V{:.2f}Z\" fill=\"#d5dbe3\" stroke=\"#4a5a6c\" "
        "stroke-width=\"0.8\"/>\n",
        plot.left, base, steps_of(trace.memory[i], end, plot, base, units_per_byte), base);
    out += fmt::format(
        "<text x=\"{:.2f}\" y=\"{:.2f}\" font-size=\"{:.3g}\" text-anchor=\"end\" fill=\"#444444\">{} "
        "{}</text>"
        "<text x=\"{:.2f}\" y=\"{:.2f}\" font-size=\"{:.3g}\" fill=\"#444444\">{}</text>\n",
        plot.left - 8, base - 0.5 * size.memory_height + 0.35 * font, font, svg_text(options.lane_name), i,
        plot.left + plot.width + 6, base - 0.5 * size.memory_height + 0.35 * font, font,
        amount_text(peak, options));
  }
  return out;
}

}  // namespace troika
