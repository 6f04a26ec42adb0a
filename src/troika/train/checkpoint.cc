#include "troika/train/checkpoint.h"

#include <ATen/ops/empty.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "troika/base/error.h"
#include "troika/base/random.h"
#include "troika/base/text.h"
#include "troika/train/safetensors.h"

namespace troika {
namespace {

constexpr std::string_view kChecksum = "checksum";
// Says that there is a checksum, so that one flipped bit in its name doesn't switch the check off.
constexpr std::string_view kHasChecksum = "checksum_of";
constexpr std::string_view kCovers = "xxh64 of header and tensors";
constexpr std::string_view kNoChecksum = "0000000000000000";

StoredType stored_type(const NamedTensor& named) {
  switch (named.tensor.scalar_type()) {
    case at::kFloat:
      return StoredType::float32;
    case at::kDouble:
      return StoredType::float64;
    case at::kBFloat16:
      return StoredType::bfloat16;
    case at::kLong:
      return StoredType::int64;
    default:
      fail("{} has a type that a checkpoint can't hold", named.name);
  }
}

at::ScalarType scalar_type(StoredType type) {
  switch (type) {
    case StoredType::float32:
      return at::kFloat;
    case StoredType::float64:
      return at::kDouble;
    case StoredType::bfloat16:
      return at::kBFloat16;
    case StoredType::int64:
      return at::kLong;
  }
  return at::kFloat;
}

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), static_cast<size_t>(tensor.nbytes())};
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Where in the header the checksum's digits stand; npos if there are none.
size_t checksum_at(const std::string& header, const std::string& checksum) {
  const std::string entry = fmt::format("\"{}\":\"", kChecksum);
  const size_t at = header.find(entry + checksum + '"');
  return at == std::string::npos ? at : at + entry.size();
}

/// Hash of the header with its checksum zeroed, then of every tensor's bytes, each seeded with what came
/// before.
std::string checksum_of(std::string header, size_t digits_at, const std::vector<NamedTensor>& tensors) {
  header.replace(digits_at, kNoChecksum.size(), kNoChecksum);
  uint64_t hash = hash64(header);
  for (const NamedTensor& named : tensors) hash = hash64(text_of(bytes_of(named.tensor)), hash);
  return fmt::format("{:016x}", hash);
}

void check(const StoredHeader& header, const std::vector<NamedTensor>& tensors, const Path& path) {
  const auto found = header.metadata.find(std::string(kChecksum));
  const auto covers = header.metadata.find(std::string(kHasChecksum));
  if (found == header.metadata.end() && covers == header.metadata.end()) return;  // written by something else
  std::string got = "not readable";
  if (found != header.metadata.end() && covers != header.metadata.end() && covers->second == kCovers &&
      found->second.size() == kNoChecksum.size()) {
    const size_t at = checksum_at(header.bytes, found->second);
    if (at != std::string::npos) got = checksum_of(header.bytes, at, tensors);
    if (got == found->second) return;
  }
  fail("{} is damaged: the checksum of its content is {}, expected {}; use another checkpoint", path.string(),
       got, found == header.metadata.end() ? "one" : printable(found->second, 40));
}

void write_stream(const Path& temporary, const std::string& header, const std::vector<NamedTensor>& tensors) {
  const FileHandle file = open_to_write(temporary);
  write_all(file, std::as_bytes(std::span(header)), temporary);
  for (const NamedTensor& named : tensors) write_all(file, bytes_of(named.tensor), temporary);
  sync_file(file, temporary);
}

}  // namespace

void write_checkpoint(const Path& path, const Checkpoint& checkpoint) {
  StoredHeader header;
  header.metadata = checkpoint.metadata;
  std::vector<NamedTensor> tensors;
  std::set<std::string> names;
  uint64_t at = 0;
  for (const NamedTensor& named : checkpoint.tensors) {
    TROIKA_ASSERT(names.insert(named.name).second, "two tensors named " + named.name);
    tensors.push_back({named.name, named.tensor.contiguous()});
    const auto bytes = static_cast<uint64_t>(named.tensor.nbytes());
    header.tensors.push_back({named.name, stored_type(named), named.tensor.sizes().vec(), at, at + bytes});
    at += bytes;
  }
  header.metadata[std::string(kChecksum)] = kNoChecksum;
  header.metadata[std::string(kHasChecksum)] = kCovers;
  std::string head = header_bytes(header);
  const size_t at_digits = checksum_at(head, std::string(kNoChecksum));
  TROIKA_ASSERT(at_digits != std::string::npos, "the header lacks its checksum");
  head.replace(at_digits, kNoChecksum.size(), checksum_of(head, at_digits, tensors));
  const Path temporary = path.string() + fmt::format(".{}.tmp", ::getpid());
  try {
    write_stream(temporary, head, tensors);
    if (::rename(temporary.c_str(), path.c_str()) != 0) {
      fail("can't create {}: {}", path.string(), system_message(errno));
    }
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

Checkpoint read_checkpoint(const Path& path) {
  const FileHandle file = open_to_read(path);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail("can't look at {}: {}", path.string(), system_message(errno));
  StoredHeader header = read_header(file, static_cast<uint64_t>(status.st_size), path);
  Checkpoint checkpoint;
  for (const StoredTensor& stored : header.tensors) {
    at::Tensor tensor = at::empty(stored.shape, at::TensorOptions().dtype(scalar_type(stored.type)));
    read_exactly(file, bytes_of(tensor), header.bytes.size() + stored.begin, path);
    checkpoint.tensors.push_back({stored.name, std::move(tensor)});
  }
  check(header, checkpoint.tensors, path);
  header.metadata.erase(std::string(kChecksum));
  header.metadata.erase(std::string(kHasChecksum));
  checkpoint.metadata = std::move(header.metadata);
  return checkpoint;
}

}  // namespace troika
