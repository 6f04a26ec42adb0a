#include "troika/base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "troika/base/text.h"

namespace troika {

bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) != 0; }

Progress::Progress(bool quiet)
    : quiet_(quiet),
      terminal_(stderr_is_terminal()),
      start_(Clock::now()),
      next_(start_ + to_duration(terminal_ ? 0.1 : 10.0)) {}

Progress::~Progress() {
  if (open_line_) fmt::print(stderr, "\r\x1b[K");
}

bool Progress::due() const { return !quiet_ && Clock::now() >= next_; }

void Progress::update(const std::string& what, double done, double total) {
  if (!due()) return;
  next_ = Clock::now() + to_duration(terminal_ ? 0.1 : 10.0);
  std::string text = what;
  if (total > 0 && done > 0) {
    const double left = seconds_since(start_) * (total - done) / done;
    text += fmt::format("  {:.0f} %  {} left", 100 * done / total, human_seconds(left));
  }
  if (terminal_) {
    fmt::print(stderr, "\r\x1b[K{}", text);
    std::fflush(stderr);
    open_line_ = true;
  } else {
    fmt::print(stderr, "{}\n", text);
  }
}

void Progress::line(const std::string& text) {
  if (quiet_) return;
  fmt::print(stderr, "{}{}\n", open_line_ ? "\r\x1b[K" : "", text);
  open_line_ = false;
}

}  // namespace troika
