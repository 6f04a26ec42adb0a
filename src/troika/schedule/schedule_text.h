// A schedule as text, one line per lane, actions separated by blanks:
//
//     # kind=train micro_batches=2 edges=0>1 versions=1,1
//     0F0 0F1 0B0 0B1
//     1F0 1B0 1F1 1B1
//
// The header is the line that starts with # and whose first word is key=value; it may be left out (train,
// highest micro-batch + 1, s->s+1, one version); printing always writes it. Other keys, written only where
// they differ from the default: updates=2, recompute=0,2 (stages), and
// states=loads,messages,reductions,updates (default: what stands in the lanes). Other lines that start with #
// are comments; a lane without actions is "-", and so is an empty list. Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "troika/schedule/schedule.h"

namespace troika {

std::string to_text(const Schedule& schedule);

/// to_text's inverse. `where` names the text in messages (a path). Throws Error naming line, place and what
/// was expected. What is well written but wrong as a schedule is validate()'s to say.
Schedule parse_schedule(std::string_view text, const std::string& where);

}  // namespace troika
