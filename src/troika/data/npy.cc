#include "troika/data/npy.h"

#include "troika/base/error.h"

namespace troika {

size_t item_bytes(NpyType type) { return type == NpyType::float32 ? 4 : 8; }

std::string npy_header(NpyType type, int64_t rows, int64_t columns) {
  std::string header = "\x93NUMPY";
  header += {'\x01', '\x00', static_cast<char>(kNpyHeaderBytes - 10), '\x00'};
  header += fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}, {}), }}",
                        type == NpyType::float32 ? "<f4" : "<i8", rows, columns);
  TROIKA_ASSERT(header.size() < kNpyHeaderBytes, "the header's text is too long");
  header.resize(kNpyHeaderBytes - 1, ' ');
  return header + '\n';
}

}  // namespace troika
