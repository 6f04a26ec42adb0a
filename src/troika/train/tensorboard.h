// Scalars of a run for TensorBoard: an events file in the run's directory. The format is TFRecord (length,
// masked CRC-32C, bytes, masked CRC-32C) around protocol buffer messages `Event`, encoded by hand: a wall
// time, a step, and a `Summary` of named floats. No torch. Threading: an object belongs to one thread;
// functions are pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "troika/base/file.h"

namespace troika {

/// CRC-32C (Castagnoli), as in RFC 3720.
uint32_t crc32c(std::string_view bytes);

struct Scalar {
  std::string tag;  // "loss/train"
  double value = 0;
};

class EventsFile {
 public:
  /// Creates events.out.tfevents.<seconds>.<host>.troika in `folder`, with a number that no other file there
  /// has. `after_step`: steps up to it are in earlier files; viewers forget what they have seen of later
  /// ones. 0 for a fresh run. Throws Error naming the file.
  EventsFile(const Path& folder, int64_t after_step);

  const Path& path() const { return path_; }

  /// Appends one event, in one write. Times are of the system's clock.
  void add(int64_t step, std::span<const Scalar> scalars);

  /// Puts the file on disk.
  void sync();

 private:
  Path path_;
  FileHandle file_;
};

/// The events files of ours in `folder`, the oldest first.
std::vector<Path> events_files(const Path& folder);

/// Whether a file of that name is one.
bool is_events_file(std::string_view name);

/// Cuts every events file in `folder` before its first event of a step after `step`, and before a record that
/// is damaged or was cut short.
void truncate_events(const Path& folder, int64_t step);

}  // namespace troika
