// Training steps of one model at one global batch, done in different ways: a plain LibTorch loop, Troika with
// one rank, with N ranks that share or replicate their weights, as `--ranks auto` would, and as a pipeline.
// What bench/data_parallel, bench/pipeline and bench/tensor_parallel time. Threading: from one thread; a
// block starts rank threads of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ways.h"

namespace troika::bench {

/// A built-in model with 40 inputs and one output; sequence models see 64 rows of them.
struct Case {
  std::string model;
  int64_t width, layers, batch;
  std::string name() const;
};

/// The sets of the README's tables.
std::vector<Case> all_cases();
std::vector<Case> pipeline_cases();
std::vector<Case> tensor_cases();

/// In a fixed order; the members say where.
struct Ways {
  std::vector<Way> all;
  static constexpr size_t plain = 0, one_rank = 3, shared = 4, replicated = 5, automatic = 6,
                          part_of_batch = 7;
};
Ways ways_of(const Case& of, int ranks);

/// Of a pipeline with so many lanes, and what it is measured by: one rank with a thread for each lane, with
/// one thread, with one thread and as many micro-batches, and as many data ranks. Stages are cut by
/// parameters.
std::vector<Way> pipeline_ways(const Case& of, int lanes);
std::string one_rank(int threads, int micro_batches = 1);  // the names of the first ones

/// Of tensor ranks, and what they are measured by: one rank with a thread for each of them, with one thread,
/// and as many data ranks.
std::vector<Way> tensor_ways(const Case& of, int ranks);

/// The same pipeline without memory meters and with them.
std::vector<Way> metered_ways(const Case& of, int lanes);

}  // namespace troika::bench
