#include "troika/schedule/schedule_text.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include "troika/base/error.h"
#include "troika/base/text.h"

namespace troika {
namespace {

constexpr size_t kShownLetters = 40;
constexpr std::string_view kNone = "-";  // an empty lane, an empty list

const std::vector<std::string> kKeys = {"kind",    "micro_batches", "edges", "versions",
                                        "updates", "recompute",     "states"};
const std::vector<std::string> kStates = {"loads", "messages", "reductions", "updates"};

// What is stated if the header doesn't say: what stands in the lanes.
Stated stated_in(const std::vector<Lane>& lanes) {
  Stated stated;
  for (const Lane& lane : lanes) {
    for (const Action& action : lane) {
      stated.loads |= action.op == Op::load;
      stated.messages |= is_message(action.op);
      stated.reductions |= action.op == Op::reduce_gradients;
      stated.updates |= action.op == Op::optimizer_step;
    }
  }
  return stated;
}

// Empty if no stage is.
std::vector<bool> recomputed_in(const std::vector<Lane>& lanes, size_t stages) {
  std::vector<bool> recomputed;
  for (const Lane& lane : lanes) {
    for (const Action& action : lane) {
      if (action.op != Op::recompute) continue;
      recomputed.resize(stages);
      recomputed[static_cast<size_t>(action.stage)] = true;
    }
  }
  return recomputed;
}

// The most updates that stand in the lanes of one stage, at least 1. Numbers are those of the actions.
int updates_in(const std::vector<Lane>& lanes) {
  int updates = 1;
  for (const Lane& lane : lanes) {
    for (const Action& action : lane) {
      if (action.op == Op::reduce_gradients || action.op == Op::optimizer_step) {
        updates = std::max(updates, action.micro_batch + 1);
      }
    }
  }
  return updates;
}

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

// What the header says; what it leaves out is not set.
struct Header {
  size_t line = 0;  // 0: there is none
  std::optional<std::string_view> kind, micro_batches, edges, versions, updates, recompute, states;

  std::optional<std::string_view>* find(std::string_view key) {
    if (key == "kind") return &kind;
    if (key == "micro_batches") return &micro_batches;
    if (key == "edges") return &edges;
    if (key == "versions") return &versions;
    if (key == "updates") return &updates;
    if (key == "recompute") return &recompute;
    if (key == "states") return &states;
    return nullptr;
  }
};

bool is_blank(char letter) { return letter == ' ' || letter == '\t' || letter == '\r'; }

// Takes the next word off the front of `text`; empty at the end.
std::string_view take_word(std::string_view& text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  size_t size = 0;
  while (size < text.size() && !is_blank(text[size])) ++size;
  const std::string_view word = text.substr(0, size);
  text.remove_prefix(size);
  return word;
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

class Reader {
 public:
  Reader(std::string_view text, const std::string& where) : where_(where) {
    constexpr std::string_view kMark = "\xEF\xBB\xBF";  // some editors write it
    if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
    size_t line = 0;
    while (!text.empty()) {
      const size_t end = text.find('\n');
      read_line(text.substr(0, end), ++line);
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    }
    if (schedule_.lanes.empty()) {
      fail("{}: there are no lanes; expected a line of actions for each lane, as in 0F0 0F1 0B0 0B1", where_);
    }
  }

  Schedule schedule() {
    place_stages();
    number_updates();
    read_header();
    return std::move(schedule_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void fail_at(size_t line, fmt::format_string<Args...> text, Args&&... args) const {
    fail("{}:{}: {}", where_, line, fmt::format(text, std::forward<Args>(args)...));
  }

  void read_line(std::string_view text, size_t line) {
    const std::string_view content = take_word(text);
    if (content.empty()) return;
    if (content.front() == '#') {
      const std::string_view rest(content.data() + 1, content.size() - 1 + text.size());
      read_comment(rest, line);
      return;
    }
    Lane lane;
    std::string_view word = content;
    if (word == kNone) word = take_word(text);
    for (; !word.empty(); word = take_word(text)) lane.push_back(read_action(word, line, lane.size() + 1));
    if (content == kNone && !lane.empty()) {
      fail_at(line, "expected nothing after -, which is a lane without actions");
    }
    schedule_.lanes.push_back(std::move(lane));
    line_of_lane_.push_back(line);
  }

  Action read_action(std::string_view word, size_t line, size_t place) const {
    try {
      return parse_action(word);
    } catch (const Error& error) {
      std::string_view message = error.what();
      constexpr std::string_view kStart = "action ";
      if (message.starts_with(kStart)) message.remove_prefix(kStart.size());
      fail_at(line, "action {} {}", place, message);
    }
  }

  // A comment is a header if its first word is key=value.
  void read_comment(std::string_view text, size_t line) {
    std::string_view word = take_word(text);
    if (word.find('=') == std::string_view::npos) return;
    if (header_.line != 0) fail_at(line, "a second header; the first one is line {}", header_.line);
    if (!schedule_.lanes.empty()) fail_at(line, "the header must stand before the first lane");
    header_.line = line;
    for (; !word.empty(); word = take_word(text)) {
      const size_t equals = word.find('=');
      const std::string_view key = word.substr(0, equals);
      std::optional<std::string_view>* const value = header_.find(key);
      if (equals == std::string_view::npos || value == nullptr) {
        fail_at(line, "\"{}\" is no key of the header{}; expected key=value, the keys are {}",
                printable(key, kShownLetters), did_you_mean(key.substr(0, kShownLetters), kKeys),
                fmt::join(kKeys, ", "));
      }
      if (*value) fail_at(line, "{} is given twice", key);
      *value = word.substr(equals + 1);
    }
  }

  // A stage stands in the lane of its first action; one without any in none (-1), which validate() reports.
  void place_stages() {
    const size_t actions = schedule_.num_actions();
    int stages = 0, micro_batches = 0;
    for (size_t lane = 0; lane < schedule_.lanes.size(); ++lane) {
      for (size_t step = 0; step < schedule_.lanes[lane].size(); ++step) {
        const Action& action = schedule_.lanes[lane][step];
        if (static_cast<size_t>(action.stage) >= actions) {
          fail_at(line_of_lane_[lane],
                  "action {} \"{}\": there are {} actions, too few for a stage number of {}: expected every "
                  "stage from 0 on to have some",
                  step + 1, to_string(action), actions, action.stage);
        }
        if (action.micro_batch == std::numeric_limits<int>::max()) {
          fail_at(line_of_lane_[lane], "action {} \"{}\": expected a smaller number of the micro-batch",
                  step + 1, to_string(action));
        }
        stages = std::max(stages, action.stage + 1);
        micro_batches = std::max(micro_batches, action.micro_batch + 1);
      }
    }
    schedule_.num_micro_batches = micro_batches;
    schedule_.lane_of_stage.assign(static_cast<size_t>(stages), -1);
    for (size_t lane = 0; lane < schedule_.lanes.size(); ++lane) {
      for (const Action& action : schedule_.lanes[lane]) {
        int& home = schedule_.lane_of_stage[static_cast<size_t>(action.stage)];
        if (home < 0) home = static_cast<int>(lane);
      }
    }
  }

  // The k-th R of a stage is that of update k, and so is the k-th O.
  void number_updates() {
    std::vector<int> reductions(schedule_.lane_of_stage.size()), steps(schedule_.lane_of_stage.size());
    for (Lane& lane : schedule_.lanes) {
      for (Action& action : lane) {
        const auto stage = static_cast<size_t>(action.stage);
        if (action.op == Op::reduce_gradients) action.micro_batch = reductions[stage]++;
        if (action.op == Op::optimizer_step) action.micro_batch = steps[stage]++;
      }
    }
  }

  void read_header() {
    const int stages = schedule_.num_stages();
    if (header_.kind) {
      if (*header_.kind != "train" && *header_.kind != "forward") {
        fail_at(header_.line, "kind={}: expected train or forward", printable(*header_.kind, kShownLetters));
      }
      if (*header_.kind == "forward") schedule_.kind = Kind::forward;
    }
    if (header_.micro_batches) {
      schedule_.num_micro_batches = number("micro_batches", *header_.micro_batches, 0);
    }
    schedule_.edges = header_.edges ? edges(*header_.edges, stages) : chain_edges(stages);
    schedule_.max_versions.assign(static_cast<size_t>(stages), 1);
    if (header_.versions) schedule_.max_versions = versions(*header_.versions, stages);
    schedule_.num_updates =
        header_.updates ? number("updates", *header_.updates, 1) : updates_in(schedule_.lanes);
    schedule_.recomputed = recomputed_in(schedule_.lanes, static_cast<size_t>(stages));
    if (header_.recompute) schedule_.recomputed = recomputed(*header_.recompute, stages);
    schedule_.stated = header_.states ? states(*header_.states) : stated_in(schedule_.lanes);
  }

  int number(std::string_view key, std::string_view text, int least) const {
    int value = 0;
    if (is_number(text, value) && value >= least) return value;
    fail_at(header_.line, "{}={}: expected a whole number from {}", key, printable(text, kShownLetters),
            least);
  }

  std::vector<Edge> edges(std::string_view text, int stages) const {
    std::vector<Edge> all;
    for (const std::string_view item : items_of(text)) {
      const size_t arrow = item.find('>');
      Edge edge;
      if (arrow == std::string_view::npos || !is_number(item.substr(0, arrow), edge.from) ||
          !is_number(item.substr(arrow + 1), edge.to)) {
        fail_at(header_.line, "edges: \"{}\": expected pairs of stages, as in edges=0>1,1>2",
                printable(item, kShownLetters));
      }
      if (edge.from >= edge.to || edge.to >= stages) {
        fail_at(header_.line, "edges: {}>{}: expected a stage and a later one of the {} stages (0 to {})",
                edge.from, edge.to, stages, stages - 1);
      }
      all.push_back(edge);
    }
    std::ranges::sort(all);
    const auto twice = std::ranges::adjacent_find(all);
    if (twice != all.end()) fail_at(header_.line, "edges: {}>{} is given twice", twice->from, twice->to);
    return all;
  }

  std::vector<int> versions(std::string_view text, int stages) const {
    std::vector<int> all;
    for (const std::string_view item : items_of(text)) all.push_back(number("versions", item, 1));
    if (all.size() != static_cast<size_t>(stages)) {
      fail_at(header_.line, "versions: expected {} numbers, one per stage, got {}", stages, all.size());
    }
    return all;
  }

  std::vector<bool> recomputed(std::string_view text, int stages) const {
    std::vector<bool> all(static_cast<size_t>(stages));
    for (const std::string_view item : items_of(text)) {
      const int stage = number("recompute", item, 0);
      if (stage >= stages) {
        fail_at(header_.line, "recompute: there is no stage {}: the stages are 0 to {}", stage, stages - 1);
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
        fail_at(header_.line, "states: \"{}\" is unknown{}; expected some of {}",
                printable(item, kShownLetters), did_you_mean(item.substr(0, kShownLetters), kStates),
                fmt::join(kStates, ", "));
      }
      bool* const fields[] = {&stated.loads, &stated.messages, &stated.reductions, &stated.updates};
      *fields[found - kStates.begin()] = true;
    }
    return stated;
  }

  const std::string& where_;
  Schedule schedule_;
  std::vector<size_t> line_of_lane_;
  Header header_;
};

}  // namespace

std::string to_text(const Schedule& schedule) {
  std::string text = header_text(schedule) + "\n";
  for (const Lane& lane : schedule.lanes) {
    std::vector<std::string> actions;
    for (const Action& action : lane) actions.push_back(to_string(action));
    text += fmt::format("{}\n", actions.empty() ? kNone : fmt::format("{}", fmt::join(actions, " ")));
  }
  return text;
}

Schedule parse_schedule(std::string_view text, const std::string& where) {
  return Reader(text, where).schedule();
}

}  // namespace troika
