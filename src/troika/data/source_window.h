// The groups of rows that are in memory, at most a fixed number, and the thread that loads them.
//
// One loader thread serves all readers. First it loads a group that a reader waits for; else, into the place
// of a group that every reader has passed, the next one in order, across the end of an epoch. A reader that
// waits holds no group, so every wait ends whatever the other readers do: one that is gone only stops the
// reading ahead.
//
// Threading: all functions from any reader's thread; the window outlives them. One mutex guards everything
// but the content of groups: the loader alone writes a group that isn't published, readers only read one they
// hold.
#pragma once

#include <compare>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "troika/data/order.h"
#include "troika/data/source_shards.h"

namespace troika {

struct GroupId {
  int64_t epoch = -1;
  int64_t group = 0;
  auto operator<=>(const GroupId&) const = default;
};

/// Row 0 of a block in each array; only rows that are in an item may be read.
struct BlockRows {
  const std::byte* floats = nullptr;
  const std::byte* ints = nullptr;
};

/// A group in memory.
struct LoadedGroup {
  std::vector<Slot> items;        // in the order of positions
  std::vector<BlockRows> blocks;  // Slot::block is the index
};

/// How groups are held: mapped, or read into `slots` buffers; and what that takes.
struct WindowPlan {
  ShardReader::How how = ShardReader::How::mapped;
  int slots = 2;
  uint64_t bytes = 0;  // without the sample order's own
};

/// Bytes of one group in memory, besides mapped files.
uint64_t group_bytes(const SampleOrder& order, const Dataset& dataset, ShardReader::How how);

class GroupWindow {
 public:
  /// `order` and `orders` outlive it.
  GroupWindow(const SampleOrder& order, EpochOrders& orders, ShardReader shards, const WindowPlan& plan,
              int readers);
  GroupWindow(const GroupWindow&) = delete;
  GroupWindow& operator=(const GroupWindow&) = delete;
  ~GroupWindow();

  /// `reader` needs nothing before this position any more. Throws Error if the loader has failed.
  void move_to(int reader, int64_t epoch, int64_t position);

  /// Waits until the group is in memory, and holds it there until release(). A reader holds one at a time.
  /// Throws Error if the loader has failed, with its reason.
  const LoadedGroup& acquire(int reader, GroupId id);
  void release(int reader);

 private:
  struct Place {
    GroupId id;                // epoch -1: empty, or being loaded
    int64_t end_position = 0;  // of the group, in its epoch
    int holders = 0;
    LoadedGroup group;
    std::unique_ptr<std::byte[]> floats, ints;  // rows of all blocks that aren't used where they are mapped
  };
  struct Reader {
    bool started = false;
    int64_t epoch = 0, position = 0;
    std::optional<GroupId> waits_for;
    Place* holds = nullptr;
    bool has_passed(const Place& place) const;
  };
  struct Task {
    Place* place;
    GroupId id;
  };

  void load_in_turn();
  std::optional<Task> next_task();
  Place* find(GroupId id);
  Place* place_for_demand();
  bool passed_by_all(const Place& place) const;
  bool is_waited_for(const Place& place) const;
  void load(Place& place, GroupId id);
  bool is_used_in_place(const Block& block) const;
  BlockRows load_block(Place& place, int64_t rows_before, const Block& block);
  void copy_rows(Storage storage, int shard, Range rows, std::byte* out);
  void throw_if_failed() const;

  const SampleOrder& order_;
  EpochOrders& orders_;
  ShardReader shards_;  // the loader's alone
  ShardReader::How how_;

  std::mutex mutex_;
  std::condition_variable task_;    // for the loader
  std::condition_variable loaded_;  // for readers
  std::vector<Place> places_;
  std::vector<Reader> readers_;
  std::string failure_;  // of the loader, for every reader
  bool stop_ = false;
  std::thread loader_;
};

}  // namespace troika
