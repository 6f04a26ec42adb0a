// The safetensors format, without tensors: u64 length (little endian), JSON header padded with spaces to 8
// bytes, raw row-major bytes without holes. Files from elsewhere are data to distrust: every field is checked
// before it is used. Threading: values and pure functions; thread-safe as such.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "troika/base/file.h"

namespace troika {

enum class StoredType { float32, float64, bfloat16, int64 };

struct StoredTensor {
  std::string name;
  StoredType type = StoredType::float32;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // bytes, from the start of the data
  uint64_t end = 0;
  bool operator==(const StoredTensor&) const = default;
};

struct StoredHeader {
  std::map<std::string, std::string> metadata;
  std::vector<StoredTensor> tensors;  // in the order of their bytes, without gaps
  std::string bytes;                  // as they stand in the file, length field included; set by read_header
};

int64_t size_of(StoredType type);

/// Length field, JSON and padding; the tensors' begin and end must be set, in order, without gaps.
std::string header_bytes(const StoredHeader& header);

/// Reads and checks the header of a file of `file_size` bytes. Throws Error naming the file and what is
/// wrong: cut short, not JSON, a name twice, an unknown type, a shape that does not fit its bytes, overlaps
/// and gaps.
StoredHeader read_header(const FileHandle& file, uint64_t file_size, const Path& path);

/// The same from memory: `text` is the JSON.
StoredHeader parse_header(std::string_view text, uint64_t data_size, const Path& path);

}  // namespace troika
