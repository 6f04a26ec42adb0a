// Progress on standard error: one line that rewrites itself on a terminal, a plain line now and then
// otherwise. Belongs to one thread.
#pragma once

#include <string>

#include "troika/base/clock.h"

namespace troika {

class Progress {
 public:
  /// `quiet` prints nothing at all.
  explicit Progress(bool quiet = false);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();  // ends the line

  /// `done` of `total` (in any unit; total <= 0 if unknown) and what to say about it, such as a rate. Adds
  /// the time left. Prints at most ten times a second on a terminal, else every ten seconds.
  void update(const std::string& what, double done, double total);

  /// True if update() would print now, so that callers needn't build a text that nobody sees.
  bool due() const;

  /// A line that stays.
  void line(const std::string& text);

 private:
  bool quiet_;
  bool terminal_;
  bool open_line_ = false;
  Clock::time_point start_;
  Clock::time_point next_;
};

/// Whether standard error is a terminal.
bool stderr_is_terminal();

}  // namespace troika
