// Runs the built command as a user would and keeps what it says.
#pragma once

#include <string>
#include <vector>

namespace troika {

struct CommandResult {
  int status = 0;  // exit status; 128 + signal if it was killed
  std::string out, err;
};

/// `arguments` go to build/<preset>/troika as they are; `folder` is its working directory ("" for this
/// one's); it reads `input`. Ends it (status 142) after `deadline_seconds`.
CommandResult run_troika(const std::vector<std::string>& arguments, const std::string& folder = "",
                         int deadline_seconds = 60, const std::string& input = "");

}  // namespace troika
