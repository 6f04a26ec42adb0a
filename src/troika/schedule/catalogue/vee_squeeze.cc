#include "troika/schedule/catalogue/vee_squeeze.h"

#include <algorithm>

namespace troika::vee {
namespace {

constexpr int kPeriod = 6;
constexpr int kWeight = kChain;  // the k-th weight part of a lane is that of its k-th input part

struct Item {
  int slot, lane, kind, index;
  auto operator<=>(const Item&) const = default;
};

// What stands in a lane's slots: a kind, or -1.
using Row = std::vector<int>;

class Squeeze {
 public:
  Squeeze(const Shape& shape, const PatternSlots& pattern)
      : shape_(shape), slots_(pattern.size()), rows_(pattern.size()) {
    for (size_t lane = 0; lane < pattern.size(); ++lane) {
      for (int kind = 0; kind < kChain; ++kind) {
        for (int i = 0; i < shape.micro_batches; ++i) {
          slots_[lane][static_cast<size_t>(kind)].push_back(pattern[lane][static_cast<size_t>(kind)] +
                                                            kPeriod * i);
        }
      }
    }
  }

  bool collides() {
    fill_rows();
    size_t filled = 0;
    for (const Row& row : rows_)
      filled += row.size() - static_cast<size_t>(std::count(row.begin(), row.end(), -1));
    return filled != rows_.size() * static_cast<size_t>(kChain * shape_.micro_batches);
  }

  // First with the weight parts where the pattern has room for them, then without: they go into the gaps that
  // are left.
  Ranks run() {
    place_weights();
    move(true);
    start_at_once();
    for (auto& lane : slots_) lane[kWeight].clear();
    move(false);
    place_weights();
    start_at_once();
    for (auto& lane : slots_) lane[kWeight].clear();
    place_weights();
    return ranks();
  }

 private:
  void fill_rows() {
    for (size_t lane = 0; lane < rows_.size(); ++lane) {
      int end = 0;
      for (const auto& kind : slots_[lane]) {
        if (!kind.empty()) end = std::max(end, kind.back() + 1);
      }
      rows_[lane].assign(static_cast<size_t>(end), -1);
      for (size_t kind = 0; kind < slots_[lane].size(); ++kind) {
        for (const int slot : slots_[lane][kind])
          rows_[lane][static_cast<size_t>(slot)] = static_cast<int>(kind);
      }
    }
  }

  void place_weights() {
    fill_rows();
    for (size_t lane = 0; lane < rows_.size(); ++lane) {
      int waiting = 0, slot = 0;
      const auto place = [&] { slots_[lane][kWeight].push_back(slot), --waiting; };
      for (const int kind : rows_[lane]) {
        if (kind >= kInputUp) ++waiting;
        if (kind < 0 && waiting > 0) place();
        ++slot;
      }
      for (; waiting > 0; ++slot) place();
    }
  }

  // The most chunks a lane holds. Where the weight parts aren't placed, gaps are theirs.
  static int peak(const Row& row, bool weights_placed) {
    int held = 0, most = 0, waiting = 0;
    for (const int kind : row) {
      if (kind == kForwardDown || kind == kForwardUp) most = std::max(most, ++held);
      if (kind == kInputUp || kind == kInputDown) ++waiting;
      if (weights_placed ? kind == kWeight : kind < 0 && waiting > 0) --held, --waiting;
    }
    return most;
  }

  std::vector<Item> items() const {
    std::vector<Item> items;
    for (size_t lane = 0; lane < slots_.size(); ++lane) {
      for (size_t kind = 0; kind < slots_[lane].size(); ++kind) {
        int index = 0;
        for (const int slot : slots_[lane][kind]) {
          items.push_back({slot, static_cast<int>(lane), static_cast<int>(kind), index++});
        }
      }
    }
    std::sort(items.begin(), items.end());
    return items;
  }

  int slot_of(int lane, int kind, int index) const {
    return slots_[static_cast<size_t>(lane)][static_cast<size_t>(kind)][static_cast<size_t>(index)];
  }

  // The first slot after everything the pass needs.
  int earliest(const Item& item) const {
    const auto [slot, lane, kind, index] = item;
    int after = index > 0 ? slot_of(lane, kind, index - 1) : -1;
    if (kind == kWeight) {
      const auto& own = slots_[static_cast<size_t>(lane)];
      std::vector<int> inputs(own[kInputUp]);
      inputs.insert(inputs.end(), own[kInputDown].begin(), own[kInputDown].end());
      std::nth_element(inputs.begin(), inputs.begin() + index, inputs.end());
      return std::max(after, inputs[static_cast<size_t>(index)]) + 1;
    }
    if (kind > 0) after = std::max(after, slot_of(lane, kind - 1, index));
    const int from = to_higher_lanes(kind) ? lane - 1 : lane + 1;
    if (from >= 0 && from < shape_.lanes) after = std::max(after, slot_of(from, kind, index));
    return after + 1;
  }

  // Filling ends with the first micro-batch's last input part, draining begins after the last forward of the
  // first lane. With weight parts both are squeezed, without them the draining.
  void move(bool weights_placed) {
    fill_rows();
    int most = 0;
    for (const Row& row : rows_) most = std::max(most, peak(row, weights_placed));
    bool fills = true, all_forwards = false;
    for (const Item& item : items()) {
      const bool moves = fills ? weights_placed : all_forwards;
      if (item.lane == 0 && item.kind == kInputDown) fills = false;
      if (item.lane == 0 && item.kind == kForwardDown) all_forwards = item.index == shape_.micro_batches - 1;
      if (!moves) continue;
      Row& row = rows_[static_cast<size_t>(item.lane)];
      int& slot = slots_[static_cast<size_t>(item.lane)][static_cast<size_t>(item.kind)]
                        [static_cast<size_t>(item.index)];
      row[static_cast<size_t>(slot)] = -1;
      for (int to = earliest(item); to < item.slot; ++to) {
        int& place = row[static_cast<size_t>(to)];
        if (place >= 0) continue;
        place = item.kind;
        if (peak(row, weights_placed) <= most) {
          slot = to;
          break;
        }
        place = -1;
      }
      row[static_cast<size_t>(slot)] = item.kind;
    }
  }

  // The same order, each pass as soon as it can.
  void start_at_once() {
    std::vector<int> free(slots_.size());
    for (const Item& item : items()) {
      int& lane_free = free[static_cast<size_t>(item.lane)];
      const int slot = std::max(lane_free, earliest(item));
      slots_[static_cast<size_t>(item.lane)][static_cast<size_t>(item.kind)]
            [static_cast<size_t>(item.index)] = slot;
      lane_free = slot + 1;
    }
  }

  Ranks ranks() const {
    struct LaneState {
      std::array<int, kPasses> next = {};
      std::vector<Pass> waiting;  // weight parts, in the order of their input parts
      size_t placed = 0;
    };
    Ranks ranks(shape_.num_passes());
    std::vector<LaneState> lanes(slots_.size());
    for (const Item& item : items()) {
      LaneState& lane = lanes[static_cast<size_t>(item.lane)];
      const int pass = item.kind == kWeight ? lane.waiting[lane.placed++] : item.kind;
      ranks[shape_.at(item.lane, pass, lane.next[static_cast<size_t>(pass)]++)] = item.slot;
      if (pass == kInputUp) lane.waiting.push_back(kWeightUp);
      if (pass == kInputDown) lane.waiting.push_back(kWeightDown);
    }
    return ranks;
  }

  const Shape& shape_;
  std::vector<std::array<std::vector<int>, kChain + 1>> slots_;  // per lane and kind
  std::vector<Row> rows_;
};

}  // namespace

std::optional<Ranks> squeezed(const Shape& shape, const PatternSlots& pattern) {
  Squeeze squeeze(shape, pattern);
  if (squeeze.collides()) return std::nullopt;
  return squeeze.run();
}

}  // namespace troika::vee
