// What a pipeline costs and gains. First the executor alone: stages that sleep, the step's length against the
// one simulated from the passes' own durations, for each synchronous schedule. Then real models on as many
// cores as lanes, in alternating blocks of steps (ways.h), against one rank that has all these cores, or one.
// Last the first of these models with and without meters of its stages' memory.
// With --serve one way waits for orders of bench/peers/compare.py.
#include <CLI/CLI.hpp>

#include "executor_overhead.h"
#include "train_steps.h"
#include "troika/base/cpu.h"
#include "troika/base/memory.h"
#include "troika/schedule/catalogue.h"

namespace {

using namespace troika;
using bench::Case;
using bench::Overhead;
using bench::OverheadCase;
using bench::Way;

constexpr double kMostOverhead = 1.02;

struct Options : bench::WayOptions {
  Options() { seconds = 60; }
  std::string part = "all";
  std::vector<int> overhead_lanes = {2, 4, 8};
  double pass_ms = 5;
  int steps = 5;
  int lanes = 2;
};

/// What is wrong with it, or "".
std::string verdict(const Overhead& overhead) {
  if (!overhead.in_order) return "not the schedule's order";
  if (!(overhead.jitter_us > 0)) return "no jitter: not measured";
  if (overhead.ratio.median > kMostOverhead) return fmt::format("above {}", kMostOverhead);
  return "";
}

/// False if one is wrong.
bool run_overhead(const Options& options, nlohmann::json& results) {
  bench::Table table({"schedule, lanes x micro-batches", "actions", "measured ms", "simulated ms",
                      "ratio (quartiles)", "us an action", "us a message", "us in a pass", "jitter us", ""});
  bool good = true;
  for (const int lanes : options.overhead_lanes) {
    for (const CatalogueEntry& entry : catalogue()) {
      if (entry.asynchronous || entry.name.find(options.filter) == std::string::npos) continue;
      const OverheadCase of{std::string(entry.name), lanes, 2 * lanes, options.pass_ms * 1e-3, options.steps};
      const Overhead found = overhead_of(of);
      const std::string wrong = verdict(found);
      good = good && wrong.empty();
      table.add({fmt::format("{} {}x{}", of.schedule, lanes, of.micro_batches), std::to_string(found.actions),
                 fmt::format("{:.2f}", found.makespan_s * 1e3),
                 fmt::format("{:.2f}", found.simulated_s * 1e3), text(found.ratio, 4),
                 fmt::format("{:.1f}", found.own_us), fmt::format("{:.1f}", found.message_us),
                 fmt::format("{:.1f}", found.pass_us), fmt::format("{:.1f}", found.jitter_us), wrong});
      results.push_back({{"schedule", of.schedule},
                         {"lanes", lanes},
                         {"micro_batches", of.micro_batches},
                         {"actions", found.actions},
                         {"makespan_s", found.makespan_s},
                         {"simulated_s", found.simulated_s},
                         {"ratio", to_json(found.ratio)},
                         {"microseconds",
                          {{"action", found.own_us},
                           {"message", found.message_us},
                           {"pass", found.pass_us},
                           {"jitter", found.jitter_us}}},
                         {"in_order", found.in_order},
                         {"wrong", wrong}});
    }
  }
  if (!options.json && !results.empty()) {
    fmt::print("Stages that sleep {} ms a pass: measured against simulated from the measured passes\n",
               options.pass_ms);
    table.print();
    fmt::print("\n");
  }
  return good;
}

const Way& named(const std::vector<Way>& ways, const std::string& name) {
  return *std::find_if(ways.begin(), ways.end(), [&](const Way& way) { return way.name == name; });
}

nlohmann::json run_rates(const Case& c, const Options& options) {
  std::vector<Way> ways = bench::pipeline_ways(c, options.lanes);
  bench::measure(ways, options.seconds, options.rounds);
  const Way& threads = named(ways, bench::one_rank(options.lanes));
  const Way& one = named(ways, bench::one_rank(1));
  return bench::report(c.name(), ways,
                       {{fmt::format("x {} threads", options.lanes), "speed_up_over_threads", &threads},
                        {"x 1 thread", "speed_up_over_one_thread", &one}},
                       options.json);
}

nlohmann::json run_meters(const Options& options) {
  const Case of = bench::pipeline_cases().front();
  std::vector<Way> ways = bench::metered_ways(of, options.lanes);
  bench::measure(ways, options.seconds, options.rounds);
  if (!options.json) {
    bench::Table table({fmt::format("{}, {} lanes, 1f1b, 8 micro-batches", of.name(), options.lanes),
                        "us a step (quartiles)", "samples/s", "of it without meters (quartiles)"});
    for (const Way& way : ways) {
      table.add({way.name, text(microseconds(way), 0), fmt::format("{:.0f}", samples_per_s(way)),
                 text(speed_up(way, ways[0]), 4)});
    }
    table.print();
    std::fflush(stdout);
  }
  return {{"name", of.name()},
          {"microseconds_without", to_json(microseconds(ways[0]))},
          {"microseconds_with", to_json(microseconds(ways[1]))},
          {"throughput_kept", to_json(speed_up(ways[1], ways[0]))}};
}

int serve(const Options& options) {
  for (const Case& c : bench::pipeline_cases()) {
    if (c.name() == options.filter && bench::serve(bench::pipeline_ways(c, options.lanes), options.serve))
      return 0;
  }
  fmt::print(stderr, "pipeline: no case \"{}\" or no way \"{}\"; --list prints them\n", options.filter,
             options.serve);
  return 2;
}

int list(const Options& options) {
  for (const Case& c : bench::pipeline_cases()) {
    if (c.name().find(options.filter) == std::string::npos) continue;
    for (const Way& way : bench::pipeline_ways(c, options.lanes)) fmt::print("{}\t{}\n", c.name(), way.name);
  }
  return 0;
}

int run(const Options& options) {
  if (!options.serve.empty()) return serve(options);
  if (options.list) return list(options);
  nlohmann::json result = {{"cores", usable_cores()},
                           {"overhead", nlohmann::json::array()},
                           {"lanes", options.lanes},
                           {"rounds", options.rounds},
                           {"cases", nlohmann::json::array()}};
  const auto is_asked = [&](const char* part) { return options.part == "all" || options.part == part; };
  const bool good = !is_asked("overhead") || run_overhead(options, result["overhead"]);
  for (const Case& c : bench::pipeline_cases()) {
    if (!is_asked("rates") || c.name().find(options.filter) == std::string::npos) continue;
    result["cases"].push_back(run_rates(c, options));
  }
  if (is_asked("meters") && options.filter.empty()) result["meters"] = run_meters(options);
  if (result["overhead"].empty() && result["cases"].empty() && !result.contains("meters")) {
    fmt::print(stderr, "pipeline: no schedule and no model has \"{}\" in its name\n", options.filter);
    return 2;
  }
  if (options.json) fmt::print("{}\n", result.dump(2));
  return good ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  prefer_huge_pages();  // as the command does
  CLI::App app(
      "Times pipelines: what the executor adds to a step, training steps of two models, and what memory "
      "meters cost.\nExample: "
      "pipeline "
      "--part overhead --filter zb-h1");
  Options options;
  app.add_option("--part", options.part, "what to time")
      ->check(CLI::IsMember({"all", "overhead", "rates", "meters"}))
      ->capture_default_str();
  app.add_option("--overhead-lanes", options.overhead_lanes, "lanes of stages that sleep")
      ->check(CLI::Range(2, 1024))
      ->capture_default_str();
  app.add_option("--pass", options.pass_ms, "milliseconds that a pass sleeps")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--steps", options.steps, "measured steps of stages that sleep")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--lanes", options.lanes, "lanes of a model, and threads of one rank")
      ->check(CLI::Range(2, 1024))
      ->capture_default_str();
  add_options(app, options, "schedules or models");
  CLI11_PARSE(app, count, arguments);
  return bench::guarded("pipeline", [&] { return run(options); });
}
