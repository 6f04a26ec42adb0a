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
  return bench::report(
      c.name(), ways,
      {{fmt::format("x plain, {} threads", options.ranks), "speed_up_over_plain_threads", &ways[0]},
       {"x 1 rank", "speed_up_over_one_rank", &ways[2]}},
      options.json);
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
  return bench::guarded("tensor_parallel", [&] { return run(options); });
}
