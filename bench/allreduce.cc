// How long thread ranks take to sum their elements, from 4 KB to 64 MB. Each rank times itself from a barrier
// to the end of its call; a sample is the slowest rank's time.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "stats.h"
#include "troika/base/clock.h"
#include "troika/base/cpu.h"
#include "troika/base/text.h"
#include "troika/comm/rank_group.h"

namespace {

using namespace troika;

struct Case {
  std::string op;
  int64_t bytes;
  int repeats;
};

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

std::vector<double> measure(int ranks, const Case& what) {
  std::vector<std::vector<double>> seconds(static_cast<size_t>(ranks));
  run_thread_ranks(ranks, {}, [&](Communicator& communicator) {
    const std::unique_ptr<void, Free> memory(std::aligned_alloc(4096, static_cast<size_t>(what.bytes)));
    const Elements elements{memory.get(), what.bytes / size_of(ElementType::float32), ElementType::float32};
    auto* values = static_cast<float*>(memory.get());
    const auto refill = [&] { std::fill(values, values + elements.count, 1.0f); };
    refill();
    constexpr int kWarmUp = 5;
    for (int repeat = -kWarmUp; repeat < what.repeats; ++repeat) {
      if (repeat % 64 == 0) refill();  // sums double each time and must stay finite
      communicator.barrier();
      const auto start = Clock::now();
      if (what.op == "all_reduce_sum") {
        communicator.all_reduce_sum(elements);
      } else {
        communicator.all_reduce_weighted_mean(elements, 1.0 + communicator.rank());
      }
      const double took = seconds_since(start);
      if (repeat >= 0) seconds[static_cast<size_t>(communicator.rank())].push_back(took);
    }
  });
  std::vector<double> slowest = seconds[0];
  for (const auto& own : seconds) {
    for (size_t i = 0; i < own.size(); ++i) slowest[i] = std::max(slowest[i], own[i]);
  }
  return slowest;
}

std::string microseconds(double seconds) { return fmt::format("{:.2f}", seconds * 1e6); }

}  // namespace

int main(int count, char** arguments) {
  CLI::App app("Times all-reduce between thread ranks.\nExample: allreduce --ranks 2 --json");
  int ranks = 2;
  int rounds = 3;
  bool json = false;
  app.add_option("--ranks", ranks, "thread ranks")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--rounds", rounds, "how often the whole list is gone through")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--json", json, "one JSON object on standard output");
  CLI11_PARSE(app, count, arguments);

  std::vector<Case> cases;
  for (const char* op : {"all_reduce_sum", "all_reduce_weighted_mean"}) {
    for (int64_t bytes = 4 << 10; bytes <= 64 << 20; bytes *= 4) {
      cases.push_back({op, bytes, static_cast<int>(std::clamp<int64_t>((256 << 20) / bytes, 8, 2000))});
    }
  }
  // Rounds are alternated, so that a slow moment of the machine doesn't hit one size only.
  std::vector<std::vector<double>> samples(cases.size());
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < cases.size(); ++i) {
      const std::vector<double> more = measure(ranks, cases[i]);
      samples[i].insert(samples[i].end(), more.begin(), more.end());
    }
  }

  nlohmann::json result = {{"ranks", ranks}, {"cores", usable_cores()}, {"type", "float32"}};
  bench::Table table({"op", "size", "median us", "quartiles us", "GB/s of elements"});
  for (size_t i = 0; i < cases.size(); ++i) {
    const bench::Spread spread = bench::spread_of(samples[i]);
    const double rate = static_cast<double>(cases[i].bytes) / spread.median * 1e-9;
    table.add({cases[i].op, human_bytes(static_cast<double>(cases[i].bytes)), microseconds(spread.median),
               fmt::format("{} - {}", microseconds(spread.low), microseconds(spread.high)),
               fmt::format("{:.2f}", rate)});
    result["results"].push_back({{"op", cases[i].op},
                                 {"bytes", cases[i].bytes},
                                 {"samples", samples[i].size()},
                                 {"median_s", spread.median},
                                 {"low_s", spread.low},
                                 {"high_s", spread.high}});
  }
  if (json) {
    fmt::print("{}\n", result.dump(2));
  } else {
    fmt::print("{} ranks on {} usable cores\n", ranks, usable_cores());
    table.print();
  }
  return 0;
}
