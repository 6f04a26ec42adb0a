// Reads a BatchSource as ranks do: one thread a reader, each its share of every global batch.
#pragma once

#include <atomic>
#include <barrier>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/make_dataset.h"
#include "troika/base/split.h"
#include "troika/data/source.h"

namespace troika {

/// Items [from, size) of `epoch` in global order as the readers got them, `span` rows each; int column 0
/// holds the row's number. The readers meet after every batch, as ranks do.
struct Reading {
  std::vector<int64_t> rows;
  std::vector<float> floats;
  std::vector<std::string> errors;  // per reader; "" if it came to the end
};

inline Reading read_epoch(BatchSource& source, const Dataset& dataset, int readers, int64_t epoch,
                          int64_t batch, int64_t from = 0, int64_t span = 1) {
  const int64_t size = source.size();
  Reading reading;
  reading.rows.resize(static_cast<size_t>((size - from) * span), -1);
  reading.floats.resize(static_cast<size_t>((size - from) * span * dataset.float_columns));
  reading.errors.resize(static_cast<size_t>(readers));
  std::barrier meet(readers);
  std::vector<std::jthread> threads;
  for (int reader = 0; reader < readers; ++reader) {
    threads.emplace_back([&, reader] {
      RowBuffer buffer;
      try {
        for (int64_t begin = from; begin < size; begin += batch) {
          const Range mine = share({begin, std::min(begin + batch, size)}, readers, reader);
          source.gather(reader, epoch, mine, buffer);
          for (int64_t i = 0; i < buffer.rows; ++i) {
            const auto to = static_cast<size_t>((mine.begin - from) * span + i);
            reading.rows[to] = buffer.ints[static_cast<size_t>(i * dataset.int_columns)];
            std::copy_n(buffer.floats.begin() + i * dataset.float_columns, dataset.float_columns,
                        reading.floats.begin() + static_cast<int64_t>(to) * dataset.float_columns);
          }
          meet.arrive_and_wait();
        }
      } catch (const std::exception& error) {
        reading.errors[static_cast<size_t>(reader)] = error.what();
        meet.arrive_and_drop();
      }
    });
  }
  threads.clear();
  return reading;
}

constexpr uint64_t kAmple = uint64_t{1} << 30;

/// The plan with the most bytes that doesn't map the dataset: found by asking, as a user would.
inline std::unique_ptr<BatchSource> open_pooled(const Dataset& dataset, const RowSet& rows, uint64_t seed,
                                                SourceOptions options) {
  options.memory_budget_bytes = kAmple;
  uint64_t budget = BatchSource::open(dataset, rows, seed, options)->planned_bytes();
  options.memory_budget_bytes = budget - 1;
  return BatchSource::open(dataset, rows, seed, options);
}

}  // namespace troika
