// Text for people: nearest names, sizes, durations, and the few string helpers the standard library lacks.
// Pure functions; thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troika {

/// The name in `names` nearest to `word` by edit distance, or "" if none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& names);

/// " (did you mean \"batch\"?)" or "", for the end of an error message.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& names);

std::string_view trim(std::string_view text);

/// "a,b" -> {"a", "b"}; "" -> {}.
std::vector<std::string> split_text(std::string_view text, char separator);

/// 1536 -> "1.5 KB" (powers of 1024; "B" below one KB).
std::string human_bytes(double bytes);

/// 83.2 -> "1 min 23 s"; 0.0042 -> "4.2 ms".
std::string human_seconds(double seconds);

/// 336776 -> "336,776".
std::string with_commas(int64_t number);

/// At most `limit` bytes of `text`, cut at a whole UTF-8 character, control characters as \xNN; "..." if it
/// was cut.
std::string printable(std::string_view text, size_t limit);

/// Whether `text` is well-formed UTF-8 (NUL included).
bool is_utf8(std::string_view text);

}  // namespace troika
