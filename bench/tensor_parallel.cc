// What tensor ranks gain on one machine: training steps of wide models with small batches, which are bound by
// reading the weights, in alternating blocks of steps (ways.h), against plain LibTorch with a thread for each
// rank, which is the rival, and against one thread. With --serve one way waits for orders of
// bench/peers/compare.py.
#include <CLI/CLI.hpp>

#include "train_steps.h"
#include "troika/base/cpu.h"
#include "troika/base/memory.h"

namespace {

using namespace troika;
using bench::Case;
using bench::Way;

struct Options : bench::WayOptions {
  int ranks = 2;
};

nlohmann::json run_case(const Case& c, const Options& options) {
  std::vector<Way> ways = bench::tensor_ways(c, options.ranks);
  bench::measure(ways, options.seconds, options.rounds);
  const Way &threads = ways[0], &one = ways[2];
  bench::Table table({c.name(), "us a step (quartiles)", "samples/s",
                      fmt::format("x plain, {} threads (quartiles)", options.ranks), "x 1 rank (quartiles)"});
  nlohmann::json rows = nlohmann::json::array();
  for (const Way& way : ways) {
    const bench::Spread over_threads = speed_up(way, threads), over_one = speed_up(way, one);
    table.add({way.name, text(microseconds(way), 0), fmt::format("{:.0f}", samples_per_s(way)),
               text(over_threads, 3), text(over_one, 3)});
    rows.push_back({{"name", way.name},
                    {"microseconds", to_json(microseconds(way))},
                    {"samples_per_s", samples_per_s(way)},
                    {"speed_up_over_plain_threads", to_json(over_threads)},
                    {"speed_up_over_one_rank", to_json(over_one)}});
  }
  if (!options.json) {
    table.print();
    fmt::print("\n");
    std::fflush(stdout);
  }
  return {{"name", c.name()}, {"ways", rows}};
}

int run(const Options& options) {
  nlohmann::json result = {{"cores", usable_cores()},
                           {"ranks", options.ranks},
                           {"rounds", options.rounds},
                           {"cases", nlohmann::json::array()}};
  for (const Case& c : bench::tensor_cases()) {
    if (c.name().find(options.filter) == std::string::npos) continue;
    if (options.list) {
      for (const Way& way : bench::tensor_ways(c, options.ranks)) fmt::print("{}\t{}\n", c.name(), way.name);
    } else if (options.serve.empty()) {
      result["cases"].push_back(run_case(c, options));
    } else if (bench::serve(bench::tensor_ways(c, options.ranks), options.serve)) {
      return 0;
    }
  }
  if (options.list) return 0;
  if (!options.serve.empty() || result["cases"].empty()) {
    fmt::print(stderr, "tensor_parallel: no model \"{}\" or no way \"{}\"; --list prints them\n",
               options.filter, options.serve);
    return 2;
  }
  if (options.json) fmt::print("{}\n", result.dump(2));
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  prefer_huge_pages();  // as the command does
  CLI::App app(
      "Times training steps of wide models on tensor ranks.\nExample: tensor_parallel --filter mlp --json");
  Options options;
  app.add_option("--ranks", options.ranks, "tensor ranks, and threads of the rival")
      ->check(CLI::Range(2, 1024))
      ->capture_default_str();
  add_options(app, options, "models");
  CLI11_PARSE(app, count, arguments);
  try {
    return run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "tensor_parallel: {}\n", error.what());
    return 1;
  }
}
