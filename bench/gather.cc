// How fast batches come out of a BatchSource, beside bare copies of the same rows from memory: one after the
// other, and in the same shuffled order. With --window an item is that many rows in a row. The dataset is in
// the page cache; a sample is an epoch.
#include <CLI/CLI.hpp>
#include <cstring>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "stats.h"
#include "support/make_dataset.h"
#include "support/temporary_folder.h"
#include "troika/base/clock.h"
#include "troika/base/cpu.h"
#include "troika/base/error.h"
#include "troika/base/text.h"
#include "troika/data/source.h"

namespace {

using namespace troika;

struct Options {
  int64_t rows = 500'000;
  int columns = 40;
  int64_t batch = 1024;
  int64_t window = 1;
  int64_t stride = 1;
  int repeats = 9;
  bool json = false;
};

// One way to get an epoch's rows, and the seconds that each epoch took.
struct Way {
  std::string name;
  std::function<void(int64_t epoch)> read_epoch;
  std::vector<double> seconds;
};

void read_from(BatchSource& source, int64_t epoch, int64_t batch, RowBuffer& out) {
  for (int64_t at = 0; at < source.size(); at += batch) {
    source.gather(0, epoch, {at, std::min(at + batch, source.size())}, out);
  }
}

// The bare loop: `order` says which item of `all` comes next, by its first row.
void copy_items(const std::vector<float>& all, const std::vector<int64_t>& order, const Options& options,
                std::vector<float>& out) {
  const int64_t item = options.window * options.columns;
  out.resize(static_cast<size_t>(options.batch * item));
  for (size_t i = 0; i < order.size(); ++i) {
    std::memcpy(out.data() + static_cast<int64_t>(i) % options.batch * item,
                all.data() + order[i] * options.columns, static_cast<size_t>(item) * sizeof(float));
  }
}

int run(const Options& options) {
  const TemporaryFolder folder;
  const Dataset dataset = make_dataset(folder.path(), {.rows = options.rows,
                                                       .float_columns = options.columns,
                                                       .int_columns = 0,
                                                       .rows_per_shard = (64 << 20) / (4 * options.columns)});
  const RowSet all(dataset.rows, true);
  RowSet starts(dataset.rows);
  std::vector<int64_t> in_order;
  for (int64_t row = 0; row + options.window <= dataset.rows; row += options.stride) {
    starts.set(row, true);
    in_order.push_back(row);
  }
  if (in_order.empty()) fail_usage("no item of {} rows fits into {} rows", options.window, options.rows);
  const auto open = [&](uint64_t budget) {
    return BatchSource::open(dataset, starts, 1, {.memory_budget_bytes = budget, .span = options.window});
  };
  const auto mapped = open(uint64_t{1} << 40);
  const auto pooled = open(mapped->planned_bytes() - 1);

  std::vector<float> memory;
  scan_rows(dataset, all, [&](const RowBuffer& rows) {
    memory.insert(memory.end(), rows.floats.begin(), rows.floats.end());
  });
  const std::vector<int64_t> shuffled = mapped->row_numbers(0, {0, mapped->size()});

  std::vector<float> out;
  RowBuffer buffer;
  std::vector<Way> ways;
  ways.push_back({"copy, in order", [&](int64_t) { copy_items(memory, in_order, options, out); }, {}});
  ways.push_back({"copy, shuffled", [&](int64_t) { copy_items(memory, shuffled, options, out); }, {}});
  ways.push_back({"gather, " + mapped->memory_plan(),
                  [&](int64_t epoch) { read_from(*mapped, epoch, options.batch, buffer); },
                  {}});
  ways.push_back({"gather, " + pooled->memory_plan(),
                  [&](int64_t epoch) { read_from(*pooled, epoch, options.batch, buffer); },
                  {}});

  // The first round isn't counted: it verifies checksums and touches pages for the first time.
  for (int64_t epoch = 0; epoch <= options.repeats; ++epoch) {
    for (Way& way : ways) {
      const auto start = Clock::now();
      way.read_epoch(epoch);
      if (epoch > 0) way.seconds.push_back(seconds_since(start));
    }
  }

  bench::Table table({"way", "million items/s", "quartiles", "GB/s", "ratio to shuffled copy"});
  nlohmann::json results = nlohmann::json::array();
  const auto items = static_cast<double>(mapped->size());
  const double baseline = bench::spread_of(ways[1].seconds).median;
  for (const Way& way : ways) {
    const bench::Spread spread = bench::spread_of(way.seconds);
    const double rate = items / spread.median;
    table.add({way.name, fmt::format("{:.2f}", rate / 1e6),
               fmt::format("{:.2f} - {:.2f}", items / spread.high / 1e6, items / spread.low / 1e6),
               fmt::format("{:.2f}", rate * static_cast<double>(options.window * dataset.row_bytes()) / 1e9),
               fmt::format("{:.2f}", baseline / spread.median)});
    results.push_back({{"way", way.name},
                       {"items_per_s", rate},
                       {"items_per_s_low", items / spread.high},
                       {"items_per_s_high", items / spread.low},
                       {"ratio", baseline / spread.median}});
  }
  if (options.json) {
    const nlohmann::json object = {{"rows", dataset.rows},       {"columns", options.columns},
                                   {"batch", options.batch},     {"window", options.window},
                                   {"stride", options.stride},   {"cores", usable_cores()},
                                   {"repeats", options.repeats}, {"results", results}};
    fmt::print("{}\n", object.dump(2));
    return 0;
  }
  fmt::print(
      "{} items of {} x {} float32, every {} rows, batches of {}, {} epochs each, alternating, {} cores\n",
      with_commas(mapped->size()), options.window, options.columns, options.stride, options.batch,
      options.repeats, usable_cores());
  table.print();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Items per second of gather() and of bare copies.\nExample: gather --window 64 --stride 1 --batch 64");
  Options options;
  app.add_option("--rows", options.rows, "Rows of the dataset")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--columns", options.columns, "float32 columns")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--batch", options.batch, "Items of a batch")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--window", options.window, "Rows of an item")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--stride", options.stride, "Rows between the beginnings of two items")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--repeats", options.repeats, "Epochs of each way")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--json", options.json, "One object on standard output");
  CLI11_PARSE(app, argc, argv);
  try {
    return run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "gather: {}\n", error.what());
    return 1;
  }
}
