// The header line of a schedule's text (schedule_text.h): what its lanes don't say by themselves. Pure;
// thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "troika/schedule/schedule.h"

namespace troika {

/// "# kind=train micro_batches=2 edges=0>1 versions=1,1", and the other keys where they differ from what the
/// lanes say.
std::string header_text(const Schedule& schedule);

/// Whether the words of a comment, without its #, are a header: the first is key=value.
bool is_header(const std::vector<std::string_view>& words);

/// Sets what the header says in a schedule made from the lanes alone. `place` is where it stands, for
/// messages. Throws Error naming key and value, and what was expected.
void apply_header(const std::vector<std::string_view>& words, const std::string& place, Schedule& schedule);

}  // namespace troika
