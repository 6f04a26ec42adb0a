// Trace event JSON. Times are rounded to whole nanoseconds once, at both ends of a span, so that what is
// disjoint or nested in the trace is so in the file, and what follows at once has no gap.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "troika/base/error.h"
#include "troika/trace/draw.h"
#include "troika/trace/lanes.h"

namespace troika {
namespace {

constexpr int kProcess = 1;

struct Slice {
  Action action;
  int rank = 0;
  int64_t start = 0;  // nanoseconds
  int64_t end = 0;
  int row = 0;  // 0: the rank's own thread; spans that overlap others without being within them stand beside
  bool is_instant() const { return is_message(action.op) && start == end; }
};

int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

// JSON's own rules for text; what is not UTF-8 becomes the replacement character.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Microseconds with three decimals, without ever going through a double.
std::string micros(int64_t nanoseconds) {
  return fmt::format("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000);
}

std::vector<Slice> slices_of(const TraceLane& lane, int rank) {
  std::vector<Slice> slices;
  for (const Span& span : lane.spans) {
    slices.push_back({span.action, rank, nanoseconds(span.start_s), nanoseconds(span.end_s)});
  }
  std::stable_sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) {
    return a.start != b.start ? a.start < b.start : a.end > b.end;
  });
  std::vector<std::vector<int64_t>> open;  // per row: ends of the slices around this point, innermost last
  for (Slice& slice : slices) {
    if (slice.is_instant()) continue;
    for (size_t row = 0;; ++row) {
      if (row == open.size()) open.emplace_back();
      std::vector<int64_t>& ends = open[row];
      while (!ends.empty() && ends.back() <= slice.start) ends.pop_back();
      if (!ends.empty() && ends.back() < slice.end) continue;
      ends.push_back(slice.end);
      slice.row = static_cast<int>(row);
      break;
    }
  }
  return slices;
}

// A message, the same for both of its ends.
using Message = std::tuple<bool, int, int, int>;  // gradient?, from stage, to stage, micro-batch

Message message_of(const Action& action) {
  const bool gradient = action.op == Op::send_gradient || action.op == Op::receive_gradient;
  return is_send(action.op) ? Message{gradient, action.stage, action.peer, action.micro_batch}
                            : Message{gradient, action.peer, action.stage, action.micro_batch};
}

// Where an arrow starts or ends: a moment within a slice.
struct Anchor {
  int64_t at = 0;
  int row = 0;
  bool found = false;
};

// A message that takes no time is no slice: its arrow goes from the pass that made the value to the pass that
// uses it.
bool is_pass_of(const Slice& slice, const Message& message, int stage) {
  if (slice.action.stage != stage || slice.action.micro_batch != std::get<3>(message)) return false;
  const Op op = slice.action.op;
  return std::get<0>(message) ? has_input_part(op) : op == Op::forward;
}

Anchor anchor_of_send(const std::vector<Slice>& lane, size_t at) {
  const Slice& send = lane[at];
  if (!send.is_instant()) return {send.start, send.row, true};
  const Message message = message_of(send.action);
  for (size_t i = at; i > 0; --i) {
    const Slice& slice = lane[i - 1];
    if (!is_pass_of(slice, message, std::get<1>(message))) continue;
    // Within the slice, as near to its end as can be.
    return {std::max(slice.start, slice.end - 1), slice.row, true};
  }
  return {};
}

Anchor anchor_of_receive(const std::vector<Slice>& lane, size_t at) {
  const Slice& receive = lane[at];
  if (!receive.is_instant()) return {std::max(receive.start, receive.end - 1), receive.row, true};
  const Message message = message_of(receive.action);
  while (at > 0 && lane[at - 1].start == receive.start) --at;
  for (; at < lane.size(); ++at) {
    if (is_pass_of(lane[at], message, std::get<2>(message))) return {lane[at].start, lane[at].row, true};
  }
  return {};
}

class Events {
 public:
  Events(const Trace& trace, const ChromeOptions& options) : ranks_(trace.ranks), options_(options) {
    TROIKA_ASSERT(!options.mesh || options.mesh->ranks() == trace.ranks, "the mesh isn't of these ranks");
    const std::vector<TraceLane> lanes = lanes_of(trace);
    for (size_t rank = 0; rank < lanes.size(); ++rank) {
      slices_.push_back(slices_of(lanes[rank], static_cast<int>(rank)));
      for (const Slice& slice : slices_.back()) rows_ = std::max(rows_, slice.row + 1);
    }
  }

  void add_names(const std::string& name) {
    add("process_name", "M", 0, fmt::format("\"args\":{{\"name\":{}}}", quoted(name)));
    for (int rank = 0; rank < ranks_; ++rank) {
      int rows = 1;
      for (const Slice& slice : slices_[static_cast<size_t>(rank)]) rows = std::max(rows, slice.row + 1);
      for (int row = 0; row < rows; ++row) {
        const std::string thread =
            name_of_rank(rank) + (row == 0 ? "" : fmt::format(", beside it ({})", row));
        add("thread_name", "M", thread_of(rank, row),
            fmt::format("\"args\":{{\"name\":{}}}", quoted(thread)));
        add("thread_sort_index", "M", thread_of(rank, row),
            fmt::format("\"args\":{{\"sort_index\":{}}}", rank * rows_ + row));
      }
    }
  }

  void add_slices() {
    for (const std::vector<Slice>& lane : slices_) {
      for (const Slice& slice : lane) add_slice(slice);
    }
  }

  // Data and tensor peers have the same messages, each among themselves. Of one pipeline the k-th send of a
  // message, by time, belongs to its k-th receive: so it is with the steps of a longer trace. Without a mesh
  // the ranks' order says whose is whose.
  void add_arrows() {
    std::map<std::pair<int, Message>, std::vector<std::pair<int, Anchor>>> sends, receives;
    for (size_t rank = 0; rank < slices_.size(); ++rank) {
      const std::vector<Slice>& lane = slices_[rank];
      for (size_t at = 0; at < lane.size(); ++at) {
        if (!is_message(lane[at].action.op)) continue;
        const bool send = is_send(lane[at].action.op);
        const int number = static_cast<int>(rank);
        auto& ends = (send ? sends : receives)[{pipeline_of(number), message_of(lane[at].action)}];
        ends.emplace_back(number, send ? anchor_of_send(lane, at) : anchor_of_receive(lane, at));
      }
    }
    int arrow = 0;
    for (const auto& [which, from] : sends) {
      const auto& to = receives[which];
      for (size_t k = 0; k < std::min(from.size(), to.size()); ++k) {
        if (!from[k].second.found || !to[k].second.found) continue;
        add_arrow(which.second, from[k], to[k], arrow++);
      }
    }
  }

  void add_memory(const Trace& trace) {
    for (size_t rank = 0; rank < trace.memory.size(); ++rank) {
      for (const MemoryLevel& level : trace.memory[rank]) {
        add(fmt::format("memory of {} {}", options_.lane_name, rank), "C", static_cast<int>(rank),
            fmt::format("\"ts\":{},\"args\":{{\"bytes\":{}}}", micros(nanoseconds(level.at_s)), level.bytes));
      }
    }
  }

  const std::string& text() const { return text_; }

 private:
  std::string name_of_rank(int rank) const {
    std::string name = fmt::format("{} {}", options_.lane_name, rank);
    if (!options_.mesh) return name;
    const Coordinate at = options_.mesh->coordinate(rank);
    std::vector<std::string> places;
    if (options_.mesh->pipeline > 1) places.push_back(fmt::format("lane {}", at.pipeline));
    if (options_.mesh->data > 1) places.push_back(fmt::format("data {}", at.data));
    if (options_.mesh->tensor > 1) places.push_back(fmt::format("tensor {}", at.tensor));
    return places.empty() ? name : fmt::format("{} · {}", name, fmt::join(places, ", "));
  }

  /// Ranks with the same number send each other messages.
  int pipeline_of(int rank) const {
    if (!options_.mesh) return 0;
    const Coordinate at = options_.mesh->coordinate(rank);
    return options_.mesh->rank({at.data, 0, at.tensor});
  }

  int thread_of(int rank, int row) const { return row * ranks_ + rank; }

  void add(const std::string& name, std::string_view phase, int thread, const std::string& rest) {
    text_ += fmt::format("{}{{\"name\":{},\"ph\":\"{}\",\"pid\":{},\"tid\":{},{}}}",
                         text_.empty() ? "" : ",\n", quoted(name), phase, kProcess, thread, rest);
  }

  void add_slice(const Slice& slice) {
    const Action& action = slice.action;
    const char* category = is_message(action.op) ? "message" : is_pass(action.op) ? "pass" : "step";
    const std::string when = slice.is_instant() ? fmt::format("\"ts\":{},\"s\":\"t\"", micros(slice.start))
                                                : fmt::format("\"ts\":{},\"dur\":{}", micros(slice.start),
                                                              micros(slice.end - slice.start));
    const std::string peer = is_message(action.op) ? fmt::format(",\"peer\":{}", action.peer) : "";
    add(to_string(action), slice.is_instant() ? "i" : "X", thread_of(slice.rank, slice.row),
        fmt::format("\"cat\":\"{}\",{},\"args\":{{\"op\":\"{}\",\"stage\":{},\"micro_batch\":{}{}}}",
                    category, when, name_of(action.op), action.stage, action.micro_batch, peer));
  }

  void add_arrow(const Message& message, const std::pair<int, Anchor>& from, const std::pair<int, Anchor>& to,
                 int number) {
    const auto& [gradient, from_stage, to_stage, micro_batch] = message;
    const std::string name = fmt::format("{} {} from stage {} to {}", gradient ? "gradient" : "activation",
                                         micro_batch, from_stage, to_stage);
    add(name, "s", thread_of(from.first, from.second.row),
        fmt::format("\"cat\":\"message\",\"id\":{},\"ts\":{}", number, micros(from.second.at)));
    add(name, "f", thread_of(to.first, to.second.row),
        fmt::format("\"cat\":\"message\",\"id\":{},\"ts\":{},\"bp\":\"e\"", number, micros(to.second.at)));
  }

  int ranks_;
  ChromeOptions options_;
  int rows_ = 1;
  std::vector<std::vector<Slice>> slices_;  // per rank, by start
  std::string text_;
};

}  // namespace

std::string chrome_json(const Trace& trace, const std::string& name, const ChromeOptions& options) {
  constexpr double kLongest = 9e9;  // seconds, in 64 bits of nanoseconds
  if (trace.duration_s() > kLongest) {
    fail(
        "a trace of {:.3g} s can't be written as trace events, which count nanoseconds: at most {:.0e} s; "
        "take smaller times",
        trace.duration_s(), kLongest);
  }
  Events events(trace, options);
  events.add_names(name);
  events.add_slices();
  events.add_arrows();
  events.add_memory(trace);
  return fmt::format(
      "{{\"schemaVersion\":1,\"displayTimeUnit\":\"ms\",\"traceName\":{},\"distributedInfo\":{{\"rank\":0,"
      "\"world_size\":{}}},\"traceEvents\":[\n{}\n]}}\n",
      quoted(name), trace.ranks, events.text());
}

}  // namespace troika
