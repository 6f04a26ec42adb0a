// What data parallelism costs and gains: a plain LibTorch loop, Troika with one rank, with N ranks that share
// or replicate their weights, and with the layout that it would choose, at the same global batch, in
// alternating blocks of steps (ways.h). With --serve one way waits for orders of bench/peers/compare.py.
#include <CLI/CLI.hpp>

#include "train_steps.h"
#include "troika/base/cpu.h"
#include "troika/base/memory.h"

namespace {

using namespace troika;
using bench::Case;
using bench::Way;
using bench::Ways;

struct Options : bench::WayOptions {
  int ranks = 2;
};

nlohmann::json run_case(const Case& c, const Options& options) {
  Ways ways = bench::ways_of(c, options.ranks);
  measure(ways.all, options.seconds, options.rounds);
  const Way& plain = ways.all[Ways::plain];
  bench::Table table({c.name(), "us a step (quartiles)", "samples/s", "x plain (quartiles)"});
  nlohmann::json rows = nlohmann::json::array();
  for (const Way& way : ways.all) {
    const bench::Spread time = bench::microseconds(way);
    const double rate = bench::samples_per_s(way);
    const bench::Spread ratio = speed_up(way, plain);
    table.add({way.name, text(time, 1), fmt::format("{:.0f}", rate), text(ratio, 3)});
    rows.push_back({{"name", way.name},
                    {"batch", way.batch},
                    {"microseconds", to_json(time)},
                    {"samples_per_s", rate},
                    {"speed_up_over_plain", to_json(ratio)}});
  }
  // What N workers without any synchronisation would reach, against what N ranks do reach.
  const bench::Spread bound = speed_up(ways.all[Ways::part_of_batch], plain);
  const bench::Spread reached = speed_up(ways.all[Ways::shared], plain);
  const bench::Spread better = speed_up(ways.all[Ways::shared], ways.all[Ways::replicated]);
  if (!options.json) {
    table.print();
    fmt::print("  bound t1(G)/t1(G/{}) {}   reached by {} ranks {}   shared/replicated {}\n\n", options.ranks,
               text(bound, 2), options.ranks, text(reached, 2), text(better, 2));
    std::fflush(stdout);
  }
  return {{"name", c.name()},
          {"ways", rows},
          {"bound", to_json(bound)},
          {"reached", to_json(reached)},
          {"shared_over_replicated", to_json(better)}};
}

int serve(const Options& options) {
  for (const Case& c : bench::all_cases()) {
    if (c.name() == options.filter && bench::serve(bench::ways_of(c, options.ranks).all, options.serve))
      return 0;
  }
  fmt::print(stderr, "data_parallel: no case \"{}\" or no way \"{}\"; --list prints them\n", options.filter,
             options.serve);
  return 2;
}

int run(const Options& options) {
  if (!options.serve.empty()) return serve(options);
  nlohmann::json result = {{"ranks", options.ranks},
                           {"cores", usable_cores()},
                           {"rounds", options.rounds},
                           {"cases", nlohmann::json::array()}};
  for (const Case& c : bench::all_cases()) {
    if (c.name().find(options.filter) == std::string::npos) continue;
    if (options.list) {
      for (const Way& way : bench::ways_of(c, options.ranks).all) fmt::print("{}\t{}\n", c.name(), way.name);
    } else {
      result["cases"].push_back(run_case(c, options));
    }
  }
  if (options.json && !options.list) fmt::print("{}\n", result.dump(2));
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  prefer_huge_pages();  // as the command does
  CLI::App app(
      "Times data-parallel training steps.\nExample: data_parallel --ranks 2 --seconds 20 --filter \"mlp "
      "1024\"");
  Options options;
  app.add_option("--ranks", options.ranks, "thread ranks, and threads of the plain loop")
      ->check(CLI::Range(2, 1024))
      ->capture_default_str();
  add_options(app, options, "models");
  CLI11_PARSE(app, count, arguments);
  return bench::guarded("data_parallel", [&] { return run(options); });
}
