// Lanes as lines of text. Cells as wide as their time: "F0" and then dashes, a blank before the next; dots
// where nothing is at work.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>

#include "troika/base/error.h"
#include "troika/base/text.h"
#include "troika/trace/draw.h"
#include "troika/trace/look.h"
#include "troika/trace/text_columns.h"

namespace troika {
namespace {

constexpr int kNarrowest = 20;
constexpr int kMostBlocks = 6;

// What the cells of one trace have in common.
struct CellStyle {
  int chunks = 1;
  bool colour = false;
};

// Upper case for a lane's first stage, lower case for a later one.
std::string letters_of(const Action& action, int chunk) {
  std::string out(letters(action.op));
  if (chunk > 0) {
    for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

std::string without_stage(const Action& action, int chunk) {
  if (is_whole_stage(action.op)) return letters_of(action, chunk);
  return letters_of(action, chunk) + std::to_string(action.micro_batch);
}

// Upper and lower case name two stages; of more than two the number must.
std::string whole_label(const Action& action, int chunk, const CellStyle& style) {
  return style.chunks > 2 ? std::to_string(action.stage) + without_stage(action, 0)
                          : without_stage(action, chunk);
}

// The label that fits: all of it, or the letter. On colours, which say the letter, the number's last digits.
std::string label_for(const Action& action, int chunk, const CellStyle& style, size_t width) {
  const std::string label = whole_label(action, chunk, style);
  if (label.size() <= width) return label;
  if (!style.colour || !is_pass(action.op)) return letters_of(action, chunk).substr(0, width);
  const std::string number = std::to_string(action.micro_batch);
  return number.size() <= width ? number : number.substr(number.size() - width);
}

std::string painted(const std::string& text, const Action& action, int chunk, const CellStyle& style) {
  if (!style.colour) return text;
  return fmt::format("\x1b[48;5;{}m\x1b[38;5;16m{}\x1b[0m", terminal_colour(action.op, chunk > 0), text);
}

// A part of a cell that a block's edge cut begins or ends with dashes.
std::string cell(const Action& action, int chunk, const CellStyle& style, size_t width, bool begins,
                 bool ends) {
  std::string text = begins ? label_for(action, chunk, style, width) : "";
  // The blank parts a cell from the next one; colours do that by themselves, and hold the whole cell.
  const size_t dashes_until = style.colour ? 0 : ends && width > 2 ? width - 1 : width;
  if (text.size() < dashes_until) text.resize(dashes_until, '-');
  text.resize(width, ' ');
  return painted(text, action, chunk, style);
}

// Columns [from, until) of one lane.
std::string lane_text(const TraceLane& lane, const std::vector<int>& columns, size_t from, size_t until,
                      const ColumnScale& scale, const CellStyle& style) {
  std::string out;
  for (size_t at = from; at < until;) {
    if (columns[at] < 0) {
      out += '.';
      ++at;
      continue;
    }
    size_t end = at + 1;
    while (end < until && columns[end] == columns[at] && !scale.occupancy) ++end;
    const Action& action = lane.spans[static_cast<size_t>(columns[at])].action;
    const int chunk = lane.chunk_of(action.stage);
    if (scale.occupancy) {
      out += painted(letters_of(action, chunk).substr(0, 1), action, chunk, style);
    } else {
      const bool begins = at == 0 || columns[at - 1] != columns[at];
      const bool ends = end == columns.size() || columns[end] != columns[at];
      out += cell(action, chunk, style, end - at, begins, ends);
    }
    at = end;
  }
  return out;
}

// Blanks at the end of a line are nothing to see; on colours they are.
std::string without_end_blanks(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

// "|0        |10       |20", where a bar stands at its number's time.
std::string ruler(size_t from, size_t until, const ColumnScale& scale, double step, const TimeUnit& unit) {
  std::string out(until - from, ' ');
  size_t free = 0;
  for (auto i = static_cast<int>(std::ceil(static_cast<double>(from) / scale.per_second / step - 1e-6));;
       ++i) {
    const auto at = static_cast<size_t>(std::llround(i * step * scale.per_second));
    if (at >= until) return out;
    if (at < from || at - from < free) continue;
    const std::string mark = "|" + mark_text(i * step, step, unit);
    if (at - from + mark.size() > out.size()) return out;
    out.replace(at - from, mark.size(), mark);
    free = at - from + mark.size() + 1;
  }
}

// Columns of one block of lines: whole steps of the ruler, unless that takes one block more.
size_t block_columns(size_t columns, size_t room, double step_columns) {
  const auto blocks = [&](size_t block) { return (columns + block - 1) / block; };
  const auto whole_steps = static_cast<size_t>(std::floor(static_cast<double>(room) / step_columns));
  const auto round = static_cast<size_t>(std::llround(static_cast<double>(whole_steps) * step_columns));
  return round > 0 && blocks(round) == blocks(room) ? round : room;
}

// Entries in lines of at most `width`; an entry is broken only where a line of its own is too short for it.
std::string wrapped(const std::vector<std::string>& entries, size_t width) {
  std::string out, line;
  const auto add = [&](const std::string& text, const char* between) {
    if (!line.empty() && line.size() + std::string_view(between).size() + text.size() > width) {
      out += line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : between) + text.substr(0, width);
  };
  for (const std::string& entry : entries) {
    if (entry.size() <= width) {
      add(entry, "  ");
      continue;
    }
    for (const std::string& word : split_text(entry, ' ')) add(word, " ");
  }
  return out + line + "\n";
}

std::vector<std::string> legend_entries(const std::vector<TraceLane>& lanes, const CellStyle& style,
                                        const TextOptions& options) {
  std::set<Op> ops;
  for (const TraceLane& lane : lanes) {
    for (const Span& span : lane.spans) {
      if (takes_time(span)) ops.insert(span.action.op);
    }
  }
  std::vector<std::string> entries;
  for (const Op op : ops) {
    entries.push_back(fmt::format("{} {}", letters(op), name_of(op)));
  }
  entries.emplace_back(options.seconds ? ". waiting" : ". bubble");
  if (style.chunks > 1) entries.emplace_back("lower case: a later stage of the lane");
  return entries;
}

// The legend's letters in their colours; done after the lines are laid out, because colours have no width.
std::string with_colours(std::string legend, const std::vector<TraceLane>& lanes, const CellStyle& style) {
  if (!style.colour) return legend;
  std::set<Op> ops;
  for (const TraceLane& lane : lanes) {
    for (const Span& span : lane.spans) ops.insert(span.action.op);
  }
  for (const Op op : ops) {
    const std::string plain = fmt::format("{} {}", letters(op), name_of(op));
    const size_t at = legend.find(plain);
    if (at == std::string::npos) continue;
    legend.replace(at, letters(op).size(), painted(std::string(letters(op)), {op}, 0, style));
  }
  return legend;
}

std::string padded(std::string text, size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

// "lane 12 ", all of one width, in which "time " fits too; of a name that would leave no room for the lane
// itself only the number stays.
std::vector<std::string> lane_names(const std::string& lane_name, int ranks, size_t width) {
  const std::string name = printable(lane_name, width);
  const std::string last = std::to_string(std::max(0, ranks - 1));
  const bool named = name.size() + 1 + last.size() <= std::min<size_t>(24, width / 3);
  const size_t longest = std::max<size_t>(named ? name.size() + 1 + last.size() : last.size(), 4) + 1;
  std::vector<std::string> names;
  for (int rank = 0; rank < ranks; ++rank) {
    names.push_back(padded(named ? fmt::format("{} {}", name, rank) : std::to_string(rank), longest));
  }
  return names;
}

}  // namespace

std::string draw_text(const Trace& trace, const TextOptions& options) {
  const auto width = static_cast<size_t>(std::max(options.width, kNarrowest));
  const std::vector<TraceLane> lanes = lanes_of(trace);
  const double duration = trace.duration_s();
  const std::vector<std::string> names = lane_names(options.lane_name, trace.ranks, width);
  if (duration <= 0 || lanes.empty()) {
    std::string out;
    for (const std::string& name : names) out += without_end_blanks(name);
    return out + "nothing takes time\n";
  }
  const CellStyle style{most_chunks(lanes), options.colour};
  int longest_label = 1;
  for (const TraceLane& lane : lanes) {
    for (const Span& span : lane.spans) {
      if (!takes_time(span)) continue;
      const std::string label = whole_label(span.action, lane.chunk_of(span.action.stage), style);
      longest_label = std::max(longest_label, static_cast<int>(label.size()));
    }
  }
  const size_t room = width - names[0].size();
  const ColumnScale scale = column_scale(lanes, duration, static_cast<int>(room), longest_label, kMostBlocks);
  const TimeUnit unit = unit_for(duration, options.seconds);
  const auto columns = static_cast<size_t>(scale.columns);
  const double step = round_step(duration, std::max(1.0, static_cast<double>(columns) / 10));
  std::vector<std::vector<int>> shown;
  for (const TraceLane& lane : lanes) shown.push_back(columns_of(lane, scale));

  const auto time_at = [&](size_t column) {
    return mark_text(std::min(duration, static_cast<double>(column) / scale.per_second), step / 10, unit);
  };
  std::string out;
  const size_t block = block_columns(columns, room, step * scale.per_second);
  for (size_t from = 0; from < columns; from += block) {
    const size_t until = std::min(columns, from + block);
    if (columns > block) {
      out += fmt::format("time {} .. {}", time_at(from), time_at(until)).substr(0, width) + "\n";
    }
    out += without_end_blanks(padded(unit.name.empty() ? "time" : std::string(unit.name), names[0].size()) +
                              ruler(from, until, scale, step, unit));
    for (size_t i = 0; i < lanes.size(); ++i) {
      out += without_end_blanks(names[i] + lane_text(lanes[i], shown[i], from, until, scale, style));
    }
  }
  std::vector<std::string> entries = legend_entries(lanes, style, options);
  entries.push_back(duration_text(duration, options.seconds) + " in all");
  if (scale.occupancy) entries.emplace_back("letters in proportion to the time they take");
  return out + with_colours(wrapped(entries, width), lanes, style);
}

}  // namespace troika
