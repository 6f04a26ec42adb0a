// Texts and their codes, numbered by first appearance. Each belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troika {

/// The texts of one block; refers to the block's bytes. Made for millions of short look-ups.
class BlockDictionary {
 public:
  void clear();
  /// 16 bytes behind `text` must be readable.
  uint32_t code(std::string_view text);
  std::span<const std::string_view> texts() const { return texts_; }

 private:
  struct Slot {
    uint32_t tag = 0;
    uint32_t code_plus_one = 0;
  };
  void grow();
  std::vector<Slot> slots_;
  std::vector<std::string_view> texts_;
  std::vector<uint64_t> hashes_;
};

/// The texts of a column; owns them.
class Dictionary {
 public:
  /// The code, and whether it is new.
  std::pair<uint32_t, bool> code(std::string_view text);
  /// The code of a text that is there.
  std::optional<uint32_t> find(std::string_view text) const;
  size_t size() const { return texts_.size(); }
  /// Memory held, roughly; a function of the texts alone.
  uint64_t bytes() const { return bytes_; }
  std::vector<std::string> take();

 private:
  std::vector<uint32_t> slots_;  // code + 1
  std::vector<uint64_t> hashes_;
  std::vector<std::string> texts_;
  uint64_t bytes_ = 0;
};

}  // namespace troika
