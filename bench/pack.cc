// How fast a CSV becomes a dataset: the file's rows are repeated to about 300 MB, then packed with one thread
// and with all. "per core" divides by the processor time, so it holds on a busy machine, too; "wall" includes
// the disk's sync.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "stats.h"
#include "support/temporary_folder.h"
#include "troika/base/clock.h"
#include "troika/base/cpu.h"
#include "troika/base/error.h"
#include "troika/base/memory.h"
#include "troika/base/text.h"
#include "troika/data/pack.h"

namespace {

using namespace troika;

double processor_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// `csv` with its rows repeated until there are `bytes`.
void repeat(const std::string& csv, uint64_t bytes, const Path& to) {
  const std::string text = read_text(csv);
  const size_t header_end = text.find('\n') + 1;
  std::ofstream file(to, std::ios::binary);
  file << text;
  for (uint64_t size = text.size(); size < bytes; size += text.size() - header_end) {
    if (text.back() != '\n') file << '\n';
    file << std::string_view(text).substr(header_end);
  }
  file.flush();
  if (!file) fail("can't write {}", to.string());
}

struct Way {
  int threads;
  std::vector<double> per_core, wall;  // MB/s
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Packs a CSV, repeated to --megabytes; rates are medians with quartiles.");
  std::string csv, folder;
  uint64_t megabytes = 300;
  int repeats = 5;
  bool json = false;
  app.add_option("csv", csv, "A plain CSV with a header")->required();
  app.add_option("--megabytes", megabytes, "Size to repeat it to")->capture_default_str();
  app.add_option("--repeats", repeats, "Samples of each")->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_flag("--json", json, "One JSON object on standard output");
  CLI11_PARSE(app, argc, argv);
  try {
    const TemporaryFolder temporary;
    repeat(csv, megabytes * 1'000'000, temporary / "in.csv");
    const Sniff sniff = sniff_csv(temporary / "in.csv");
    std::vector<Way> ways{{1, {}, {}}};
    if (usable_cores() > 1) ways.push_back({usable_cores(), {}, {}});
    int64_t rows = 0;
    for (int i = 0; i < repeats; ++i) {
      for (Way& way : ways) {
        PackOptions options;
        options.files = {temporary / "in.csv"};
        options.output = temporary / "out";
        options.overwrite = true;
        options.threads = way.threads;
        const double before = processor_seconds();
        const PackReport report = pack(options, sniff, [](const PackProgress&) {});
        const double bytes = static_cast<double>(report.text_bytes) / 1e6;
        way.per_core.push_back(bytes / (processor_seconds() - before));
        way.wall.push_back(bytes / report.seconds);
        rows = report.dataset.rows;
      }
    }
    bench::Table table({"threads", "MB/s per core", "quartiles", "MB/s wall", "quartiles"});
    nlohmann::ordered_json object{{"rows", rows}, {"peak_rss_bytes", peak_rss_bytes()}};
    for (const Way& way : ways) {
      const bench::Spread core = bench::spread_of(way.per_core), wall = bench::spread_of(way.wall);
      table.add({std::to_string(way.threads), fmt::format("{:.0f}", core.median),
                 fmt::format("{:.0f}..{:.0f}", core.low, core.high), fmt::format("{:.0f}", wall.median),
                 fmt::format("{:.0f}..{:.0f}", wall.low, wall.high)});
      object["ways"].push_back(
          {{"threads", way.threads}, {"mb_per_s_per_core", core.median}, {"mb_per_s_wall", wall.median}});
    }
    if (json) {
      fmt::print("{}\n", object.dump(2));
    } else {
      fmt::print("{} rows, peak memory {}\n", with_commas(rows),
                 human_bytes(static_cast<double>(peak_rss_bytes())));
      table.print();
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "pack: {}\n", error.what());
    return 1;
  }
  return 0;
}
