// Named tensors in a safetensors file with a checksum: weights and everything else a resumed run needs.
// Threading: pure functions; thread-safe on different paths.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "troika/base/file.h"
#include "troika/parallel/model.h"

namespace troika {

struct Checkpoint {
  std::vector<NamedTensor> tensors;  // on the CPU, contiguous once read
  std::map<std::string, std::string>
      metadata;  // free text; keys that begin with "checksum" are the file's own
};

/// Writes the file whole or not at all: the old one stays if anything goes wrong, such as a full disk.
/// Tensors are written one after the other, without a second copy. float32, float64, bfloat16 and int64.
void write_checkpoint(const Path& path, const Checkpoint& checkpoint);

/// Throws Error naming the file and what is wrong; a bit that flipped anywhere in it is found by the
/// checksum. A file without one (written by something else) is read without that check.
Checkpoint read_checkpoint(const Path& path);

}  // namespace troika
