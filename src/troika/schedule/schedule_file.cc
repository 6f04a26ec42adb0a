#include "troika/schedule/schedule_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "troika/base/error.h"
#include "troika/base/file.h"
#include "troika/base/text.h"
#include "troika/schedule/catalogue.h"
#include "troika/schedule/schedule_text.h"
#include "troika/schedule/torch_csv.h"

namespace troika {
namespace {

// The longest text of a schedule or of its costs; a device that never ends isn't one.
constexpr size_t kMostBytes = size_t{256} << 20;

std::string read_all(int descriptor, const std::string& name) {
  std::string text;
  char buffer[65536];
  while (true) {
    const ssize_t got = ::read(descriptor, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("can't read {}: {}", name, system_message(errno));
    if (got == 0) return text;
    text.append(buffer, static_cast<size_t>(got));
    if (text.size() > kMostBytes) {
      fail("{} is longer than {}, which is not what is meant here", name,
           human_bytes(static_cast<double>(kMostBytes)));
    }
  }
}

// The text form has no commas outside of its lines with #.
bool looks_like_csv(std::string_view text) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = trim(text.substr(0, end));
    if (!line.empty() && line.front() != '#') return line.find(',') != std::string_view::npos;
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return false;
}

[[noreturn]] void fail_missing(const std::string& word) {
  if (is_in_catalogue(word)) {
    fail_usage(
        "{0} is a schedule of the catalogue, expected a file or -: troika schedule draw {0} --format "
        "actions | troika schedule check -",
        word);
  }
  if (is_schedule_file(word)) {
    fail_usage("there is no file {}, and no schedule is called that (troika schedule list)",
               printable(word, 200));
  }
  const std::vector<std::string> names = catalogue_names();
  fail_usage("\"{}\" is neither a file nor a schedule{}; the schedules are {}", printable(word, 60),
             did_you_mean(word, names), fmt::join(names, ", "));
}

}  // namespace

bool is_in_catalogue(const std::string& name) {
  return std::ranges::any_of(catalogue(), [&](const CatalogueEntry& entry) { return entry.name == name; });
}

bool is_schedule_file(const std::string& word) {
  return !Path(word).extension().empty() || word.find('/') != std::string::npos;
}

ScheduleSource read_schedule(const std::string& path) {
  if (path == "-") {
    const std::string name = "standard input";
    return {name, read_all(STDIN_FILENO, name), false};
  }
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) fail_missing(path);
  const std::string ending = Path(path).extension().string();
  return {path, read_bounded(path), ending == ".csv" || ending == ".CSV"};
}

LoadedSchedule parse_source(const ScheduleSource& source) {
  LoadedSchedule loaded;
  loaded.name = source.name;
  if (source.named_csv || looks_like_csv(source.text)) {
    TorchSchedule read = parse_torch_csv(source.text, loaded.name);
    loaded.schedule = std::move(read.schedule);
    loaded.notes = std::move(read.notes);
  } else {
    loaded.schedule = parse_schedule(source.text, loaded.name);
  }
  return loaded;
}

std::string read_bounded(const std::string& path) { return read_all(open_to_read(path).get(), path); }

}  // namespace troika
