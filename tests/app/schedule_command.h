// `troika schedule` as a user runs it, for the tests.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/command.h"

namespace troika {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

inline bool contains(const std::string& text, const std::string& word) {
  return text.find(word) != std::string::npos;
}

inline CommandResult schedule(Words words, const std::string& input = "", const std::string& folder = "") {
  words.insert(words.begin(), "schedule");
  return run_troika(words, folder, 60, input);
}

/// Standard output as JSON; the command must have ended with `status` and said nothing else.
inline Json json_of(Words words, int status = 0, const std::string& input = "") {
  words.push_back("--json");
  const CommandResult result = schedule(words, input);
  EXPECT_EQ(result.status, status) << result.err;
  EXPECT_EQ(result.err, "");
  return Json::parse(result.out, nullptr, false);
}

}  // namespace troika
