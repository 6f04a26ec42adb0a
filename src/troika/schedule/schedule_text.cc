#include "troika/schedule/schedule_text.h"

#include <utility>

#include "troika/base/error.h"
#include "troika/base/text.h"
#include "troika/schedule/from_lanes.h"
#include "troika/schedule/schedule_header.h"

namespace troika {
namespace {

constexpr std::string_view kEmptyLane = "-";

std::vector<std::string_view> words_of(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  std::vector<std::string_view> words;
  while (true) {
    const size_t begin = text.find_first_not_of(kBlanks);
    if (begin == std::string_view::npos) return words;
    text.remove_prefix(begin);
    words.push_back(text.substr(0, text.find_first_of(kBlanks)));
    text.remove_prefix(words.back().size());
  }
}

class TextReader {
 public:
  TextReader(std::string_view text, const std::string& where) : where_(where) {
    constexpr std::string_view kMark = "\xEF\xBB\xBF";  // some editors write it
    if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
    size_t line = 0;
    while (!text.empty()) {
      const size_t end = text.find('\n');
      read_line(text.substr(0, end), ++line);
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    }
    if (lanes_.empty()) {
      fail("{}: there are no lanes; expected a line of actions for each lane, as in 0F0 0F1 0B0 0B1", where_);
    }
  }

  Schedule schedule() {
    Schedule schedule = schedule_from_lanes(std::move(lanes_), [&](size_t lane, size_t step) {
      return fmt::format("{}: action {}", place(line_of_lane_[lane]), step + 1);
    });
    apply_header(header_, place(header_line_), schedule);
    return schedule;
  }

 private:
  std::string place(size_t line) const { return fmt::format("{}:{}", where_, line); }

  void read_line(std::string_view text, size_t line) {
    text = trim(text);
    if (text.empty()) return;
    if (text.front() == '#') {
      read_comment(text.substr(1), line);
      return;
    }
    Lane lane;
    if (text != kEmptyLane) {
      for (const std::string_view word : words_of(text)) {
        lane.push_back(read_action(word, line, lane.size() + 1));
      }
    }
    lanes_.push_back(std::move(lane));
    line_of_lane_.push_back(line);
  }

  Action read_action(std::string_view word, size_t line, size_t number) const {
    try {
      return parse_action(word);
    } catch (const Error& error) {
      std::string_view message = error.what();
      constexpr std::string_view kStart = "action ";
      if (message.starts_with(kStart)) message.remove_prefix(kStart.size());
      fail("{}: action {} {}", place(line), number, message);
    }
  }

  void read_comment(std::string_view text, size_t line) {
    std::vector<std::string_view> words = words_of(text);
    if (!is_header(words)) return;
    if (!header_.empty()) {
      fail("{}: a second header; the first one is line {}", place(line), header_line_);
    }
    if (!lanes_.empty()) fail("{}: expected the header before the first lane", place(line));
    header_ = std::move(words);
    header_line_ = line;
  }

  const std::string& where_;
  std::vector<Lane> lanes_;
  std::vector<size_t> line_of_lane_;
  std::vector<std::string_view> header_;  // its words; empty: there is none
  size_t header_line_ = 0;
};

}  // namespace

std::string to_text(const Schedule& schedule) {
  std::string text = header_text(schedule) + "\n";
  for (const Lane& lane : schedule.lanes) {
    std::vector<std::string> actions;
    for (const Action& action : lane) actions.push_back(to_string(action));
    text += fmt::format("{}\n", actions.empty() ? kEmptyLane : fmt::format("{}", fmt::join(actions, " ")));
  }
  return text;
}

Schedule parse_schedule(std::string_view text, const std::string& where) {
  return TextReader(text, where).schedule();
}

}  // namespace troika
