// What a call says when it fails, for tests of messages.
#pragma once

#include <string>

#include "troika/base/error.h"

namespace troika {

/// The message of the Error that `work` throws; "no error" if it throws none.
template <typename Work>
std::string error_of(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace troika

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)
