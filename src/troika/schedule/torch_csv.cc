#include "troika/schedule/torch_csv.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "troika/base/error.h"
#include "troika/base/text.h"
#include "troika/schedule/from_lanes.h"

namespace troika {
namespace {

constexpr std::string_view kPair = "OVERLAP_F_B";
constexpr std::string_view kWait = "WAIT_";

struct Name {
  std::string_view text;
  Op op;
};
constexpr std::array<Name, 9> kNames = {{{"F", Op::forward},
                                         {"B", Op::backward},
                                         {"I", Op::backward_input},
                                         {"W", Op::backward_weight},
                                         {"SEND_F", Op::send_activation},
                                         {"RECV_F", Op::receive_activation},
                                         {"SEND_B", Op::send_gradient},
                                         {"RECV_B", Op::receive_gradient},
                                         {"REDUCE_GRAD", Op::reduce_gradients}}};

// What a step does to weights that are cut over the ranks of a data axis; no schedule here has that.
bool is_dropped(std::string_view name) {
  return name == "UNSHARD" || name == "RESHARD" || name.starts_with(kWait);
}

std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

std::string_view take_name(std::string_view& text) {
  size_t size = 0;
  while (size < text.size() && ((text[size] >= 'A' && text[size] <= 'Z') || text[size] == '_')) ++size;
  const std::string_view name = text.substr(0, size);
  text.remove_prefix(size);
  return name;
}

// A stage hands activations to the next one and gets gradients from it. -1: there is no such stage.
int peer_of(Op op, int stage) {
  const bool next = op == Op::send_activation || op == Op::receive_gradient;
  return next ? stage + 1 : stage - 1;
}

std::string_view unquoted(std::string_view cell) {
  cell = trim(cell);
  if (cell.size() >= 2 && cell.front() == '"' && cell.back() == '"') cell = cell.substr(1, cell.size() - 2);
  return trim(cell);
}

class CsvReader {
 public:
  CsvReader(std::string_view text, const std::string& where) : where_(where) {
    constexpr std::string_view kMark = "\xEF\xBB\xBF";  // spreadsheets write it
    if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
    while (!trim(text).empty()) {  // empty rows at the end are no lanes
      const size_t end = text.find('\n');
      read_row(text.substr(0, end));
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    }
    if (lanes_.empty()) {
      fail("{}: there are no rows; expected a row for each lane, as in 0F0,0F1,0B0,0B1", where_);
    }
  }

  TorchSchedule schedule() {
    TorchSchedule result;
    result.schedule = schedule_from_lanes(
        std::move(lanes_), [&](size_t lane, size_t step) { return place(lane + 1, columns_[lane][step]); });
    bool backwards = false;
    for (const Lane& lane : result.schedule.lanes) {
      backwards |= std::ranges::any_of(
          lane, [](const Action& action) { return is_pass(action.op) && action.op != Op::forward; });
    }
    if (!backwards) {
      result.schedule.kind = Kind::forward;
      result.notes.push_back("there is no backward: read as a schedule of forwards only");
    }
    if (!dropped_.empty()) {
      std::vector<std::string> counts;
      for (const auto& [name, count] : dropped_) counts.push_back(fmt::format("{} {}", count, name));
      result.notes.push_back(fmt::format("left out: {} (weights are not sharded within a schedule here)",
                                         fmt::join(counts, ", ")));
    }
    if (pairs_ > 0) {
      result.notes.push_back(fmt::format("{} {}: read as their actions one after the other", pairs_, kPair));
    }
    return result;
  }

 private:
  std::string place(size_t row, size_t column) const {
    return fmt::format("{}: row {}, column {}:", where_, row, column);
  }

  [[noreturn]] void fail_in_cell(std::string_view cell, std::string_view reason) const {
    fail("{} \"{}\": {}", place(lanes_.size(), column_), printable(cell, kShownLetters), reason);
  }

  void read_row(std::string_view row) {
    lanes_.emplace_back();
    columns_.emplace_back();
    column_ = 0;
    while (true) {
      const size_t comma = row.find(',');
      ++column_;
      read_cell(unquoted(row.substr(0, comma)));
      if (comma == std::string_view::npos) return;
      row.remove_prefix(comma + 1);
    }
  }

  void read_cell(std::string_view cell) {
    if (cell.empty()) return;  // a bubble
    if (cell.front() != '(') {
      read_action(cell, cell);
      return;
    }
    const size_t close = cell.find(')');
    if (close == std::string_view::npos || cell.substr(close + 1) != kPair) {
      fail_in_cell(cell, "expected two actions that overlap, as in (0F1;3B0)OVERLAP_F_B");
    }
    std::string_view inner = cell.substr(1, close - 1);
    ++pairs_;
    while (true) {
      const size_t semicolon = inner.find(';');
      read_action(trim(inner.substr(0, semicolon)), cell);
      if (semicolon == std::string_view::npos) return;
      inner.remove_prefix(semicolon + 1);
    }
  }

  void read_action(std::string_view text, std::string_view cell) {
    std::string_view rest = text;
    const std::optional<int> stage = take_number(rest);
    const std::string_view name = take_name(rest);
    const bool numbered = !rest.empty();
    const std::optional<int> micro_batch = numbered ? take_number(rest) : std::optional<int>(0);
    if (!stage || *stage == std::numeric_limits<int>::max() || !micro_batch || !rest.empty()) {
      fail_in_cell(cell, "expected stage, name, micro-batch, as in 2F0 or 1SEND_F0");
    }
    if (is_dropped(name)) {
      ++dropped_[std::string(name)];
      return;
    }
    const auto known = std::ranges::find(kNames, name, &Name::text);
    if (known == kNames.end()) fail_unknown(name, cell);
    const bool wants_number = known->op != Op::reduce_gradients;
    if (wants_number != numbered) {
      fail_in_cell(cell, fmt::format("expected {} micro-batch after {}", wants_number ? "a" : "no", name));
    }
    Action action{known->op, *stage, *micro_batch};
    if (is_message(action.op)) {
      action.peer = peer_of(action.op, action.stage);
      if (action.peer < 0) fail_in_cell(cell, "stage 0 has no stage before it");
    }
    lanes_.back().push_back(action);
    columns_.back().push_back(column_);
  }

  [[noreturn]] void fail_unknown(std::string_view name, std::string_view cell) const {
    std::vector<std::string> names;
    for (const Name& each : kNames) names.emplace_back(each.text);
    names.insert(names.end(), {"UNSHARD", "RESHARD", std::string(kPair)});
    fail_in_cell(
        cell, fmt::format("\"{}\" is no action{}; the names are {}; WAIT_ and more is left out",
                          printable(name, kShownLetters), did_you_mean(name.substr(0, kShownLetters), names),
                          fmt::join(names, " ")));
  }

  const std::string& where_;
  std::vector<Lane> lanes_;
  std::vector<std::vector<size_t>> columns_;  // of each action, from 1
  size_t column_ = 0;
  std::map<std::string, int> dropped_;
  int pairs_ = 0;
};

void require_chain(const Schedule& schedule) {
  const std::vector<Edge> chain = chain_edges(schedule.num_stages());
  constexpr std::string_view kWayOut =
      "in this CSV each stage hands on to the next one alone; write the schedule as text instead";
  for (const Edge& edge : schedule.edges) {
    if (!std::ranges::binary_search(chain, edge)) {
      fail("the edge {}>{} can't be written as CSV: {}", edge.from, edge.to, kWayOut);
    }
  }
  for (const Edge& edge : chain) {
    if (!std::ranges::binary_search(schedule.edges, edge)) {
      fail("there is no edge {}>{}, which can't be written as CSV: {}", edge.from, edge.to, kWayOut);
    }
  }
}

// "" if it has no name there.
std::string cell_of(const Action& action) {
  const auto known = std::ranges::find(kNames, action.op, &Name::op);
  if (known == kNames.end()) return "";
  std::string cell = fmt::format("{}{}", action.stage, known->text);
  if (action.op != Op::reduce_gradients) cell += std::to_string(action.micro_batch);
  return cell;
}

// What the cells don't say.
std::vector<std::string> left_out(const Schedule& schedule, const std::map<Op, int>& unnamed) {
  std::vector<std::string> notes;
  for (const auto& [op, count] : unnamed) {
    notes.push_back(
        fmt::format("left out: {} {} ({}); this CSV has no name for it", count, letters(op), name_of(op)));
  }
  if (std::ranges::any_of(schedule.max_versions, [](int versions) { return versions > 1; })) {
    notes.push_back("left out: that stages hold several versions of their weights");
  }
  const Stated there = stated_in(schedule.lanes);
  if (schedule.num_updates > 1 && !there.reductions) {
    notes.push_back(fmt::format("left out: that the window has {} updates", schedule.num_updates));
  }
  if (schedule.stated != there) {
    notes.push_back("left out: that no more loads, messages, reductions or updates are needed");
  }
  return notes;
}

}  // namespace

TorchSchedule parse_torch_csv(std::string_view text, const std::string& where) {
  return CsvReader(text, where).schedule();
}

std::string to_torch_csv(const Schedule& schedule, std::vector<std::string>* notes) {
  require_chain(schedule);
  std::string text;
  std::map<Op, int> unnamed;
  for (const Lane& lane : schedule.lanes) {
    std::vector<std::string> cells;
    for (const Action& action : lane) {
      std::string cell = cell_of(action);
      if (cell.empty()) {
        ++unnamed[action.op];
      } else {
        cells.push_back(std::move(cell));
      }
    }
    // A row that is empty altogether could be taken for the end of the file.
    text += fmt::format("{}\n", cells.empty() ? "\"\"" : fmt::format("{}", fmt::join(cells, ",")));
  }
  if (notes != nullptr) *notes = left_out(schedule, unnamed);
  return text;
}

}  // namespace troika
