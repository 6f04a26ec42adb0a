#include "troika/data/dictionary.h"

#include <cstring>
#include <utility>

#include "troika/base/random.h"

namespace troika {
namespace {

__extension__ using Wide = unsigned __int128;

uint64_t fold(uint64_t a, uint64_t b) {
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t low_bytes(const char* at, size_t count) {
  uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return count >= 8 ? word : word & ((uint64_t{1} << (8 * count)) - 1);
}

// Two loads and two multiplications for up to 16 bytes, which is nearly every category.
uint64_t quick_hash(std::string_view text) {
  if (text.size() > 16) return hash64(text);
  const uint64_t low = low_bytes(text.data(), text.size());
  const uint64_t high = text.size() > 8 ? low_bytes(text.data() + 8, text.size() - 8) : 0;
  return fold(fold(low ^ 0x9E3779B97F4A7C15, (high + text.size()) ^ 0xD1B54A32D192ED03), 0x8CB92BA72F3D8DD7);
}

}  // namespace

void BlockDictionary::clear() {
  slots_.assign(slots_.empty() ? 64 : slots_.size(), Slot{});
  texts_.clear();
  hashes_.clear();
}

uint32_t BlockDictionary::code(std::string_view text) {
  if (texts_.size() * 2 >= slots_.size()) grow();
  const uint64_t hash = quick_hash(text);
  const auto tag = static_cast<uint32_t>(hash >> 32);
  const size_t mask = slots_.size() - 1;
  size_t at = hash & mask;
  while (slots_[at].code_plus_one != 0) {
    if (slots_[at].tag == tag && texts_[slots_[at].code_plus_one - 1] == text)
      return slots_[at].code_plus_one - 1;
    at = (at + 1) & mask;
  }
  texts_.push_back(text);
  hashes_.push_back(hash);
  slots_[at] = {tag, static_cast<uint32_t>(texts_.size())};
  return static_cast<uint32_t>(texts_.size() - 1);
}

void BlockDictionary::grow() {
  slots_.assign(slots_.empty() ? 64 : slots_.size() * 2, Slot{});
  const size_t mask = slots_.size() - 1;
  for (size_t code = 0; code < hashes_.size(); ++code) {
    size_t at = hashes_[code] & mask;
    while (slots_[at].code_plus_one != 0) at = (at + 1) & mask;
    slots_[at] = {static_cast<uint32_t>(hashes_[code] >> 32), static_cast<uint32_t>(code + 1)};
  }
}

std::pair<uint32_t, bool> Dictionary::code(std::string_view text) {
  if (texts_.size() * 2 >= slots_.size()) {
    slots_.assign(slots_.empty() ? 64 : slots_.size() * 2, 0);
    for (size_t code = 0; code < hashes_.size(); ++code) {
      size_t at = hashes_[code] & (slots_.size() - 1);
      while (slots_[at] != 0) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = static_cast<uint32_t>(code + 1);
    }
  }
  const uint64_t hash = hash64(text);
  const size_t mask = slots_.size() - 1;
  size_t at = hash & mask;
  while (slots_[at] != 0) {
    const uint32_t code = slots_[at] - 1;
    if (hashes_[code] == hash && texts_[code] == text) return {code, false};
    at = (at + 1) & mask;
  }
  texts_.emplace_back(text);
  hashes_.push_back(hash);
  slots_[at] = static_cast<uint32_t>(texts_.size());
  // A string object, its hash, its slots, and the text if it doesn't fit into the object.
  bytes_ +=
      sizeof(std::string) + sizeof hash + 4 * sizeof(uint32_t) + (text.size() > 15 ? text.size() + 17 : 0);
  return {slots_[at] - 1, true};
}

std::optional<uint32_t> Dictionary::find(std::string_view text) const {
  if (slots_.empty()) return std::nullopt;
  const uint64_t hash = hash64(text);
  const size_t mask = slots_.size() - 1;
  for (size_t at = hash & mask; slots_[at] != 0; at = (at + 1) & mask) {
    const uint32_t code = slots_[at] - 1;
    if (hashes_[code] == hash && texts_[code] == text) return code;
  }
  return std::nullopt;
}

std::vector<std::string> Dictionary::take() {
  slots_ = {};
  hashes_ = {};
  bytes_ = 0;
  return std::exchange(texts_, {});
}

}  // namespace troika
