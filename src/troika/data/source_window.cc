#include "troika/data/source_window.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "troika/base/cpu.h"
#include "troika/base/error.h"

namespace troika {

namespace {

// Rows of a group that are copied to a buffer: where files are mapped, only those of blocks that cross
// shards.
int64_t buffer_rows(const SampleOrder& order, ShardReader::How how) {
  return how == ShardReader::How::mapped ? order.group_crossing_rows() : order.group_rows();
}

}  // namespace

uint64_t group_bytes(const SampleOrder& order, const Dataset& dataset, ShardReader::How how) {
  const auto items = static_cast<uint64_t>(order.group_items());
  const auto blocks = static_cast<uint64_t>(order.group_blocks());
  return items * sizeof(Slot) + blocks * (sizeof(BlockRows) + sizeof(Block)) +
         static_cast<uint64_t>(buffer_rows(order, how) * dataset.row_bytes());
}

GroupWindow::GroupWindow(const SampleOrder& order, EpochOrders& orders, ShardReader shards,
                         const WindowPlan& plan, int readers)
    : order_(order),
      orders_(orders),
      shards_(std::move(shards)),
      how_(plan.how),
      places_(static_cast<size_t>(plan.slots)),
      readers_(static_cast<size_t>(readers)) {
  loader_ = std::thread([this] {
    unpin();  // whoever opens a source may be pinned to a rank's cores; the loader takes what is idle
    load_in_turn();
  });
}

GroupWindow::~GroupWindow() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  task_.notify_one();
  loader_.join();
}

void GroupWindow::throw_if_failed() const {
  if (!failure_.empty()) throw Error(failure_);
}

bool GroupWindow::Reader::has_passed(const Place& place) const {
  return std::pair(epoch, position) >= std::pair(place.id.epoch, place.end_position);
}

void GroupWindow::move_to(int reader, int64_t epoch, int64_t position) {
  bool frees_a_place = false;
  {
    const std::lock_guard lock(mutex_);
    throw_if_failed();
    Reader& self = readers_[static_cast<size_t>(reader)];
    const Reader before = self;
    self.started = true;
    self.epoch = epoch;
    self.position = position;
    for (const Place& place : places_) {
      frees_a_place |= self.has_passed(place) && !(before.started && before.has_passed(place));
    }
  }
  if (frees_a_place) task_.notify_one();
}

const LoadedGroup& GroupWindow::acquire(int reader, GroupId id) {
  std::unique_lock lock(mutex_);
  Reader& self = readers_[static_cast<size_t>(reader)];
  TROIKA_ASSERT(self.holds == nullptr, fmt::format("reader {} holds a group already", reader));
  while (true) {
    throw_if_failed();
    if (Place* const place = find(id)) {
      self.waits_for.reset();
      self.holds = place;
      ++place->holders;
      return place->group;
    }
    self.waits_for = id;
    task_.notify_one();
    loaded_.wait(lock);
  }
}

void GroupWindow::release(int reader) {
  bool last_holder = false;
  {
    const std::lock_guard lock(mutex_);
    Reader& self = readers_[static_cast<size_t>(reader)];
    last_holder = --self.holds->holders == 0;
    self.holds = nullptr;
    // Nobody waits for a place in most cases: a batch shouldn't wake the loader for nothing.
    last_holder &= std::any_of(readers_.begin(), readers_.end(),
                               [](const Reader& r) { return r.waits_for.has_value(); });
  }
  if (last_holder) task_.notify_one();
}

GroupWindow::Place* GroupWindow::find(GroupId id) {
  for (Place& place : places_) {
    if (place.id == id) return &place;
  }
  return nullptr;
}

bool GroupWindow::passed_by_all(const Place& place) const {
  return std::all_of(readers_.begin(), readers_.end(),
                     [&](const Reader& reader) { return !reader.started || reader.has_passed(place); });
}

bool GroupWindow::is_waited_for(const Place& place) const {
  return std::any_of(readers_.begin(), readers_.end(),
                     [&](const Reader& reader) { return reader.waits_for == place.id; });
}

// An empty place, else one that everybody has passed, else the one furthest ahead; never one that is held or
// about to be.
GroupWindow::Place* GroupWindow::place_for_demand() {
  Place* best = nullptr;
  for (Place& place : places_) {
    if (place.holders > 0 || is_waited_for(place)) continue;
    if (place.id.epoch < 0 || passed_by_all(place)) return &place;
    if (best == nullptr || best->id < place.id) best = &place;
  }
  return best;
}

std::optional<GroupWindow::Task> GroupWindow::next_task() {
  for (const Reader& reader : readers_) {
    if (!reader.waits_for || find(*reader.waits_for) != nullptr) continue;
    if (Place* const place = place_for_demand()) return Task{place, *reader.waits_for};
  }
  GroupId last;
  for (const Place& place : places_) last = std::max(last, place.id);
  if (last.epoch < 0) return std::nullopt;  // nobody has begun
  const bool epoch_ends = last.group + 1 == order_.groups();
  const GroupId next = epoch_ends ? GroupId{last.epoch + 1, 0} : GroupId{last.epoch, last.group + 1};
  for (Place& place : places_) {
    const bool free = place.id.epoch < 0 || passed_by_all(place);
    if (free && place.holders == 0 && !is_waited_for(place)) return Task{&place, next};
  }
  return std::nullopt;
}

void GroupWindow::load_in_turn() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    const std::optional<Task> task = next_task();
    if (!task) {
      task_.wait(lock);
      continue;
    }
    Place& place = *task->place;
    place.id = GroupId{};
    lock.unlock();
    std::string failure;
    int64_t end_position = 0;
    try {
      load(place, task->id);
      end_position = orders_.get(task->id.epoch)->group_begin[static_cast<size_t>(task->id.group) + 1];
    } catch (const std::exception& error) {
      failure = fmt::format("reading the data failed: {}", error.what());
    }
    lock.lock();
    failure_ = failure;
    if (failure_.empty()) {
      place.id = task->id;
      place.end_position = end_position;
    }
    loaded_.notify_all();
    if (!failure_.empty()) return;
  }
}

void GroupWindow::load(Place& place, GroupId id) {
  const std::shared_ptr<const EpochOrder> order = orders_.get(id.epoch);
  const std::vector<Block> blocks = order_.group_blocks(*order, id.group);
  place.group.items.reserve(static_cast<size_t>(order_.group_items()));
  order_.group_items(*order, id.epoch, id.group, place.group.items);
  const int64_t copied_rows = buffer_rows(order_, how_);
  if (copied_rows > 0 && place.floats == nullptr) {
    const auto buffer = [&](Storage storage) {
      return std::make_unique_for_overwrite<std::byte[]>(
          static_cast<size_t>(copied_rows * shards_.row_bytes(storage)));
    };
    place.floats = buffer(Storage::floats);
    place.ints = buffer(Storage::ints);
  }
  place.group.blocks.resize(blocks.size());
  int64_t rows_before = 0;
  for (size_t k = 0; k < blocks.size(); ++k) {
    place.group.blocks[k] = load_block(place, rows_before, blocks[k]);
    if (!is_used_in_place(blocks[k])) rows_before += blocks[k].rows + order_.layout().span - 1;
  }
}

bool GroupWindow::is_used_in_place(const Block& block) const {
  return how_ == ShardReader::How::mapped && !order_.layout().crosses_shards(block);
}

BlockRows GroupWindow::load_block(Place& place, int64_t rows_before, const Block& block) {
  const Range starts = order_.selected_span(block);
  const Range rows{block.row_in_shard + starts.begin,
                   block.row_in_shard + starts.end + order_.layout().span - 1};
  const auto first_row = [&](Storage storage, std::byte* buffer) -> const std::byte* {
    const int64_t row_bytes = shards_.row_bytes(storage);
    if (row_bytes == 0) return nullptr;
    if (is_used_in_place(block)) {
      return shards_.map_rows(block.shard, storage, rows) - starts.begin * row_bytes;
    }
    std::byte* const first = buffer + rows_before * row_bytes;
    copy_rows(storage, block.shard, rows, first + starts.begin * row_bytes);
    return first;
  };
  return {first_row(Storage::floats, place.floats.get()), first_row(Storage::ints, place.ints.get())};
}

// Rows counted from the beginning of `shard`, which may end in a later one.
void GroupWindow::copy_rows(Storage storage, int shard, Range rows, std::byte* out) {
  const int64_t row_bytes = shards_.row_bytes(storage);
  while (rows.size() > 0) {
    const int64_t shard_rows = order_.layout().shard_rows(shard);
    const Range part{rows.begin, std::min(rows.end, shard_rows)};
    const auto bytes = static_cast<size_t>(part.size() * row_bytes);
    if (part.size() == 0) {  // a shard without rows
    } else if (how_ == ShardReader::How::mapped) {
      std::memcpy(out, shards_.map_rows(shard, storage, part), bytes);
    } else {
      shards_.read_rows(shard, storage, part, {out, bytes});
    }
    out += bytes;
    rows = {0, rows.end - part.end};
    ++shard;
  }
}

}  // namespace troika
