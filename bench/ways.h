// Ways of doing the same thing, timed in blocks that alternate, A B C A B C. A ratio is taken within a round,
// so that a slow moment of the machine hits both sides. Threading: from one thread.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "stats.h"

namespace troika::bench {

struct Way {
  std::string name;
  int64_t batch = 0;                            // samples of a step
  std::function<double(int steps)> block = {};  // seconds for a step, the mean over a block of `steps`
  std::vector<double> seconds = {};             // of the blocks that were timed
};

/// What a benchmark of ways is asked for.
struct WayOptions {
  int rounds = 9;
  double seconds = 20;
  bool json = false, list = false;
  std::string filter, serve;
};

/// `what` are what the filter chooses from.
inline void add_options(CLI::App& app, WayOptions& options, const std::string& what) {
  app.add_option("--seconds", options.seconds, "for each model")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--rounds", options.rounds, "alternating blocks of each kind")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--filter", options.filter, "only " + what + " whose name has this in it");
  app.add_flag("--list", options.list, "print the models and the ways, and do nothing");
  app.add_option("--serve", options.serve,
                 "time this way of the model --filter, on orders from standard input");
  app.add_flag("--json", options.json, "one JSON object on standard output");
}

inline void measure(std::vector<Way>& ways, double seconds, int rounds) {
  std::vector<int> steps;
  for (const Way& way : ways) {
    const double one = way.block(5);
    const double of_block = seconds / rounds / static_cast<double>(ways.size());
    steps.push_back(std::max(3, static_cast<int>(of_block / one)));
  }
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < ways.size(); ++i) ways[i].seconds.push_back(ways[i].block(steps[i]));
  }
}

inline Spread microseconds(const Way& way) {
  std::vector<double> out;
  for (const double s : way.seconds) out.push_back(s * 1e6);
  return spread_of(std::move(out));
}

inline double samples_per_s(const Way& way) {
  return static_cast<double>(way.batch) / spread_of(way.seconds).median;
}

/// How many times faster `a` is than `b`, round by round.
inline Spread speed_up(const Way& a, const Way& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < a.seconds.size(); ++i) ratios.push_back(b.seconds[i] / a.seconds[i]);
  return spread_of(std::move(ratios));
}

inline std::string text(const Spread& s, int digits) {
  return fmt::format("{:.{}f} ({:.{}f} - {:.{}f})", s.median, digits, s.low, digits, s.high, digits);
}

inline nlohmann::json to_json(const Spread& s) {
  return {{"median", s.median}, {"low", s.low}, {"high", s.high}};
}

/// Who the ways are measured by: the head of a column of the table, and the key in JSON.
struct Rival {
  std::string heading, key;
  const Way* way;
};

/// Ways that have been timed, as a table unless there is to be JSON only.
inline nlohmann::json report(const std::string& name, const std::vector<Way>& ways,
                             const std::vector<Rival>& rivals, bool json) {
  std::vector<std::string> header{name, "us a step (quartiles)", "samples/s"};
  for (const Rival& rival : rivals) header.push_back(rival.heading + " (quartiles)");
  Table table(header);
  nlohmann::json rows = nlohmann::json::array();
  for (const Way& way : ways) {
    std::vector<std::string> row{way.name, text(microseconds(way), 0),
                                 fmt::format("{:.0f}", samples_per_s(way))};
    nlohmann::json numbers = {{"name", way.name},
                              {"microseconds", to_json(microseconds(way))},
                              {"samples_per_s", samples_per_s(way)}};
    for (const Rival& rival : rivals) {
      row.push_back(text(speed_up(way, *rival.way), 3));
      numbers[rival.key] = to_json(speed_up(way, *rival.way));
    }
    table.add(row);
    rows.push_back(numbers);
  }
  if (!json) {
    table.print();
    fmt::print("\n");
    std::fflush(stdout);
  }
  return {{"name", name}, {"ways", rows}};
}

/// The exit status of a program's work; what it throws is said.
template <typename Work>
int guarded(const char* program, const Work& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", program, error.what());
    return 1;
  }
}

/// Says "ready", then for each line of standard input with a number does that many steps and answers with the
/// seconds of one: so that bench/peers/compare.py can alternate a way with PyTorch's. False if there is no
/// way of this name.
inline bool serve(const std::vector<Way>& ways, const std::string& name) {
  for (const Way& way : ways) {
    if (way.name != name) continue;
    way.block(1);  // what is done once is done
    std::cout << "ready" << std::endl;
    for (int steps; std::cin >> steps;) std::cout << fmt::format("{:.9f}", way.block(steps)) << std::endl;
    return true;
  }
  return false;
}

}  // namespace troika::bench
