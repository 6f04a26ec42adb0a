#include "troika/train/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "troika/base/error.h"

namespace troika {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "events.out.tfevents.";
constexpr std::string_view kSuffix = ".troika";

constexpr std::array<uint32_t, 256> kCrcTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78U : 0);
    table[byte] = crc;
  }
  return table;
}();

// TFRecord stores checksums turned and shifted, so that a checksum of bytes that hold one stays a good one.
uint32_t masked(uint32_t crc) { return std::rotr(crc, 15) + 0xA282EAD8U; }

/// A protocol buffer message under construction. Fields: number and type in one varint, then the value.
class Message {
 public:
  Message& number(int field, uint64_t value) {
    varint(static_cast<uint64_t>(field) << 3 | 0);
    varint(value);
    return *this;
  }
  Message& float64(int field, double value) {
    varint(static_cast<uint64_t>(field) << 3 | 1);
    fixed(std::bit_cast<uint64_t>(value));
    return *this;
  }
  Message& bytes(int field, std::string_view value) {
    varint(static_cast<uint64_t>(field) << 3 | 2);
    varint(value.size());
    text_ += value;
    return *this;
  }
  Message& float32(int field, float value) {
    varint(static_cast<uint64_t>(field) << 3 | 5);
    fixed(std::bit_cast<uint32_t>(value));
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_ += static_cast<char>(value | 0x80);
    text_ += static_cast<char>(value);
  }
  template <typename T>
  void fixed(T value) {
    for (size_t i = 0; i < sizeof value; ++i) text_ += static_cast<char>(value >> (8 * i));
  }

  std::string text_;
};

template <typename T>
void append_fixed(std::string& text, T value) {
  for (size_t i = 0; i < sizeof value; ++i) text += static_cast<char>(value >> (8 * i));
}

template <typename T>
T read_fixed(std::string_view text, size_t at) {
  T value = 0;
  for (size_t i = 0; i < sizeof value; ++i)
    value |= static_cast<T>(static_cast<uint8_t>(text[at + i])) << (8 * i);
  return value;
}

std::string record(const std::string& content) {
  std::string out;
  append_fixed<uint64_t>(out, content.size());
  append_fixed<uint32_t>(out, masked(crc32c(out)));
  out += content;
  append_fixed<uint32_t>(out, masked(crc32c(content)));
  return out;
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  std::string host = name.data();
  std::ranges::replace(host, '/', '_');
  return host.empty() ? "localhost" : host;
}

// Field 2 of an event, the second one that we write; 0 if it isn't there.
int64_t step_of(std::string_view event) {
  constexpr size_t kWallTime = 9;
  if (event.size() <= kWallTime || event[kWallTime] != 2 << 3) return 0;
  uint64_t step = 0;
  for (size_t at = kWallTime + 1, shift = 0; at < event.size() && shift < 64; ++at, shift += 7) {
    step |= static_cast<uint64_t>(event[at] & 0x7F) << shift;
    if ((event[at] & 0x80) == 0) break;
  }
  return static_cast<int64_t>(step);
}

// How many bytes of the file are whole records of steps up to `step`.
size_t length_up_to(std::string_view text, int64_t step) {
  constexpr size_t kHead = 12, kTail = 4;
  size_t at = 0;
  while (text.size() - at >= kHead + kTail) {
    const auto length = read_fixed<uint64_t>(text, at);
    if (read_fixed<uint32_t>(text, at + 8) != masked(crc32c(text.substr(at, 8)))) break;
    if (length > text.size() - at - kHead - kTail) break;
    const std::string_view event = text.substr(at + kHead, length);
    if (read_fixed<uint32_t>(text, at + kHead + length) != masked(crc32c(event))) break;
    if (step_of(event) > step) break;
    at += kHead + length + kTail;
  }
  return at;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFFU;
  for (const char byte : bytes) crc = kCrcTable[(crc ^ static_cast<uint8_t>(byte)) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

EventsFile::EventsFile(const Path& folder, int64_t after_step) {
  const double now = wall_seconds();
  const std::string host = host_name();
  // Viewers read files in the order of their names, so a second file within one second gets the next number.
  for (auto seconds = static_cast<int64_t>(now);; ++seconds) {
    path_ = folder / fmt::format("{}{:010}.{}{}", kPrefix, seconds, host, kSuffix);
    const int descriptor = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (descriptor >= 0) {
      file_ = FileHandle(descriptor);
      break;
    }
    if (errno != EEXIST) fail("can't create {}: {}", path_.string(), system_message(errno));
  }
  std::string head = record(Message().float64(1, now).bytes(3, "brain.Event:2").text());
  if (after_step > 0) {
    // A session that starts at a step makes viewers drop what they hold of that step and later ones.
    constexpr int kStart = 1;
    head += record(Message()
                       .float64(1, now)
                       .number(2, static_cast<uint64_t>(after_step + 1))
                       .bytes(7, Message().number(1, kStart).text())
                       .text());
  }
  write_all(file_, std::as_bytes(std::span(head)), path_);
}

void EventsFile::add(int64_t step, std::span<const Scalar> scalars) {
  Message summary;
  for (const Scalar& scalar : scalars) {
    summary.bytes(1, Message().bytes(1, scalar.tag).float32(2, static_cast<float>(scalar.value)).text());
  }
  const std::string event = record(Message()
                                       .float64(1, wall_seconds())
                                       .number(2, static_cast<uint64_t>(step))
                                       .bytes(5, summary.text())
                                       .text());
  write_all(file_, std::as_bytes(std::span(event)), path_);
}

void EventsFile::sync() { sync_file(file_, path_); }

bool is_events_file(std::string_view name) { return name.starts_with(kPrefix) && name.ends_with(kSuffix); }

std::vector<Path> events_files(const Path& folder) {
  std::vector<Path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (is_events_file(entry.path().filename().string())) found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}

void truncate_events(const Path& folder, int64_t step) {
  for (const Path& path : events_files(folder)) {
    const std::string text = read_text(path);
    const size_t keep = length_up_to(text, step);
    if (keep < text.size() && ::truncate(path.c_str(), static_cast<off_t>(keep)) != 0) {
      fail("can't shorten {}: {}", path.string(), system_message(errno));
    }
  }
}

}  // namespace troika
