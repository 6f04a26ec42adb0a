// The header of a two-dimensional .npy file, format version 1.0, C order, little-endian: what numpy.load
// opens. It always takes 128 bytes, so that the number of rows can be filled in at the end. Pure functions;
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace troika {

constexpr size_t kNpyHeaderBytes = 128;

enum class NpyType { float32, int64 };
size_t item_bytes(NpyType type);

/// Exactly kNpyHeaderBytes.
std::string npy_header(NpyType type, int64_t rows, int64_t columns);

}  // namespace troika
