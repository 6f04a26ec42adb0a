#include "troika/app/output.h"

#include <cerrno>
#include <charconv>
#include <cstdio>

#include "troika/base/error.h"
#include "troika/base/text.h"

namespace troika {
namespace {

constexpr size_t kShownOfAWord = 40;

template <typename Number>
bool reads_as(const std::string& word, Number& number) {
  const char* const last = word.data() + word.size();
  const auto [end, error] = std::from_chars(word.data(), last, number);
  return error == std::errc() && end == last;
}

std::string shown(const std::string& word) {
  return word.empty() ? "nothing" : printable(word, kShownOfAWord);
}

}  // namespace

void print_out(std::string_view text) {
  const bool whole = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!whole || std::fflush(stdout) != 0) fail("can't write the output: {}", system_message(errno));
}

void print_json(const nlohmann::ordered_json& json) {
  print_out(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

void print_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) std::fputs(("note: " + note + "\n").c_str(), stderr);
}

CLI::Validator whole_number(int least, int most) {
  return {[=](const std::string& word) -> std::string {
            int number = 0;
            if (reads_as(word, number) && number >= least && number <= most) return "";
            return fmt::format("expected a whole number from {} to {}, got {}", least, with_commas(most),
                               shown(word));
          },
          ""};
}

CLI::Validator any_number() {
  return {[](const std::string& word) -> std::string {
            double number = 0;
            return reads_as(word, number) ? "" : "expected a number, got " + shown(word);
          },
          ""};
}

CLI::Validator some_name() {
  return {[](const std::string& word) -> std::string {
            return word.empty() ? "expected a file's name, got nothing" : "";
          },
          ""};
}

}  // namespace troika
