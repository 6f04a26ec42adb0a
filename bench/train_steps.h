// Training steps of one model at one global batch, done in different ways: a plain LibTorch loop, Troika with
// one rank, with N ranks that share or replicate their weights, and as `--ranks auto` would. What
// bench/data_parallel times. Threading: from one thread; a block starts rank threads of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace troika::bench {

/// A built-in model with 40 inputs and one output; sequence models see 64 rows of them.
struct Case {
  std::string model;
  int64_t width, layers, batch;
  std::string name() const;
};

/// The set of the README's table.
std::vector<Case> all_cases();

struct Way {
  std::string name;
  int64_t batch = 0;                            // samples of a step
  std::function<double(int steps)> block = {};  // seconds for a step, the mean over a block of `steps`
  std::vector<double> seconds = {};             // of the blocks that were timed
};

/// In a fixed order; the members say where.
struct Ways {
  std::vector<Way> all;
  static constexpr size_t plain = 0, one_rank = 3, shared = 4, replicated = 5, automatic = 6,
                          part_of_batch = 7;
};
Ways ways_of(const Case& of, int ranks);

}  // namespace troika::bench
