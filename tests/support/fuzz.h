// Random numbers and mutations for tests, the same on every run.
#pragma once

#include <string>
#include <vector>

#include "troika/base/random.h"

namespace troika {

class FuzzRandom {
 public:
  explicit FuzzRandom(uint64_t key) : key_(key) {}
  size_t below(size_t limit) {
    return static_cast<size_t>(uniform(key_, counter_++) * static_cast<double>(limit));
  }
  template <typename Choice>
  auto one_of(const Choice& choice) {
    return choice[below(std::size(choice))];
  }

 private:
  uint64_t key_, counter_ = 0;
};

/// One change: a word of `words` inserted, some bytes taken out, doubled, all from a place on cut off, or a
/// byte replaced.
inline void mutate(std::string& text, FuzzRandom& random, const std::vector<std::string>& words) {
  const size_t at = random.below(text.size() + 1);
  switch (random.below(5)) {
    case 0:
      text.insert(at, random.one_of(words));
      break;
    case 1:
      text.erase(at, random.below(8));
      break;
    case 2:
      text.insert(at, text.substr(random.below(text.size() + 1), random.below(40)));
      break;
    case 3:
      text.resize(at);
      break;
    default:
      if (at < text.size()) text[at] = static_cast<char>(random.below(256));
  }
}

}  // namespace troika
