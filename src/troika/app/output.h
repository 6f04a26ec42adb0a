// How commands print, and checks of the words they are given. Free functions.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace troika {

/// All of it on standard output, now. Throws Error naming the reason if it can't be written.
void print_out(std::string_view text);

/// The same of an object, and a line's end; a file's name that is no UTF-8 is shown as well as can be.
void print_json(const nlohmann::ordered_json& json);

/// "note: ..." on standard error, a line each. What can't be written there is lost.
void print_notes(const std::vector<std::string>& notes);

/// For an option: "expected a whole number from 1 to 20, got 2.5".
CLI::Validator whole_number(int least, int most);

/// For an option: "expected a number, got 1s". Infinity and NaN are numbers.
CLI::Validator any_number();

/// For an option: refuses "".
CLI::Validator some_name();

}  // namespace troika
