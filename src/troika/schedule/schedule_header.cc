#include "troika/schedule/schedule_header.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "troika/base/error.h"
#include "troika/base/text.h"
#include "troika/schedule/from_lanes.h"

namespace troika {
namespace {

constexpr std::string_view kNone = "-";  // an empty list

const std::vector<std::string> kKeys = {"kind",    "micro_batches", "edges", "versions",
                                        "updates", "recompute",     "states"};
const std::vector<std::string> kStates = {"loads", "messages", "reductions", "updates"};

std::string listed(const std::vector<std::string>& items) {
  return items.empty() ? std::string(kNone) : fmt::format("{}", fmt::join(items, ","));
}

std::string states_text(const Stated& stated) {
  std::vector<std::string> items;
  if (stated.loads) items.push_back(kStates[0]);
  if (stated.messages) items.push_back(kStates[1]);
  if (stated.reductions) items.push_back(kStates[2]);
  if (stated.updates) items.push_back(kStates[3]);
  return listed(items);
}

std::string recompute_text(const std::vector<bool>& recomputed) {
  std::vector<std::string> stages;
  for (size_t stage = 0; stage < recomputed.size(); ++stage) {
    if (recomputed[stage]) stages.push_back(std::to_string(stage));
  }
  return listed(stages);
}

std::vector<std::string_view> items_of(std::string_view list) {
  std::vector<std::string_view> items;
  if (list.empty() || list == kNone) return items;
  while (true) {
    const size_t comma = list.find(',');
    items.push_back(list.substr(0, comma));
    if (comma == std::string_view::npos) return items;
    list.remove_prefix(comma + 1);
  }
}

bool is_number(std::string_view text, int& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number >= 0;
}

class HeaderReader {
 public:
  HeaderReader(const std::string& place, Schedule& schedule) : place_(place), schedule_(schedule) {}

  void read(const std::vector<std::string_view>& words) {
    std::vector<std::string_view> seen;
    for (const std::string_view word : words) {
      const size_t equals = word.find('=');
      const std::string_view key = word.substr(0, equals);
      if (equals == std::string_view::npos || std::ranges::find(kKeys, key) == kKeys.end()) {
        fail_here(
            "\"{}\" is no key of the header{}; expected key=value, the keys are {} (the first word of a "
            "comment has no =)",
            printable(key, kShownLetters), did_you_mean(key.substr(0, kShownLetters), kKeys),
            fmt::join(kKeys, ", "));
      }
      if (std::ranges::find(seen, key) != seen.end()) fail_here("{} is given twice", key);
      seen.push_back(key);
      set(key, word.substr(equals + 1));
    }
  }

 private:
  template <typename... Args>
  [[noreturn]] void fail_here(fmt::format_string<Args...> text, Args&&... args) const {
    fail("{}: {}", place_, fmt::format(text, std::forward<Args>(args)...));
  }

  void set(std::string_view key, std::string_view value) {
    const int stages = schedule_.num_stages();
    if (key == "kind") schedule_.kind = kind(value);
    if (key == "micro_batches") schedule_.num_micro_batches = number(key, value, 0);
    if (key == "edges") schedule_.edges = edges(value, stages);
    if (key == "versions") schedule_.max_versions = versions(value, stages);
    if (key == "updates") schedule_.num_updates = number(key, value, 1);
    if (key == "recompute") schedule_.recomputed = recomputed(value, stages);
    if (key == "states") schedule_.stated = states(value);
  }

  Kind kind(std::string_view text) const {
    if (text == "train") return Kind::train;
    if (text == "forward") return Kind::forward;
    fail_here("kind={}: expected train or forward", printable(text, kShownLetters));
  }

  int number(std::string_view key, std::string_view text, int least) const {
    int value = 0;
    if (is_number(text, value) && value >= least) return value;
    fail_here("{}={}: expected a whole number from {}", key, printable(text, kShownLetters), least);
  }

  std::vector<Edge> edges(std::string_view text, int stages) const {
    std::vector<Edge> all;
    for (const std::string_view item : items_of(text)) {
      const size_t arrow = item.find('>');
      Edge edge;
      if (arrow == std::string_view::npos || !is_number(item.substr(0, arrow), edge.from) ||
          !is_number(item.substr(arrow + 1), edge.to)) {
        fail_here("edges: \"{}\": expected pairs of stages, as in edges=0>1,1>2",
                  printable(item, kShownLetters));
      }
      if (edge.from >= edge.to || edge.to >= stages) {
        fail_here("edges: {}>{}: expected a stage and a later one of the {} stages (0 to {})", edge.from,
                  edge.to, stages, stages - 1);
      }
      all.push_back(edge);
    }
    std::ranges::sort(all);
    const auto twice = std::ranges::adjacent_find(all);
    if (twice != all.end()) fail_here("edges: {}>{} is given twice", twice->from, twice->to);
    return all;
  }

  std::vector<int> versions(std::string_view text, int stages) const {
    std::vector<int> all;
    for (const std::string_view item : items_of(text)) all.push_back(number("versions", item, 1));
    if (all.size() != static_cast<size_t>(stages)) {
      fail_here("versions: expected {} numbers, one per stage, got {}", stages, all.size());
    }
    return all;
  }

  std::vector<bool> recomputed(std::string_view text, int stages) const {
    std::vector<bool> all(static_cast<size_t>(stages));
    for (const std::string_view item : items_of(text)) {
      const int stage = number("recompute", item, 0);
      if (stage >= stages) {
        fail_here("recompute: there is no stage {}: the stages are 0 to {}", stage, stages - 1);
      }
      all[static_cast<size_t>(stage)] = true;
    }
    return all;
  }

  Stated states(std::string_view text) const {
    Stated stated;
    for (const std::string_view item : items_of(text)) {
      const auto found = std::ranges::find(kStates, item);
      if (found == kStates.end()) {
        fail_here("states: \"{}\" is unknown{}; expected some of {}", printable(item, kShownLetters),
                  did_you_mean(item.substr(0, kShownLetters), kStates), fmt::join(kStates, ", "));
      }
      bool* const fields[] = {&stated.loads, &stated.messages, &stated.reductions, &stated.updates};
      *fields[found - kStates.begin()] = true;
    }
    return stated;
  }

  const std::string& place_;
  Schedule& schedule_;
};

}  // namespace

std::string header_text(const Schedule& s) {
  std::vector<std::string> edges, versions;
  for (const Edge& edge : s.edges) edges.push_back(fmt::format("{}>{}", edge.from, edge.to));
  for (const int each : s.max_versions) versions.push_back(std::to_string(each));
  std::string text = fmt::format("# kind={} micro_batches={} edges={} versions={}",
                                 s.kind == Kind::train ? "train" : "forward", s.num_micro_batches,
                                 listed(edges), listed(versions));
  if (s.num_updates != updates_in(s.lanes)) text += fmt::format(" updates={}", s.num_updates);
  if (s.recomputed != recomputed_in(s.lanes, s.lane_of_stage.size())) {
    text += " recompute=" + recompute_text(s.recomputed);
  }
  if (s.stated != stated_in(s.lanes)) text += " states=" + states_text(s.stated);
  return text;
}

bool is_header(const std::vector<std::string_view>& words) {
  return !words.empty() && words.front().find('=') != std::string_view::npos;
}

void apply_header(const std::vector<std::string_view>& words, const std::string& place, Schedule& schedule) {
  HeaderReader(place, schedule).read(words);
}

}  // namespace troika
