// What a rank calls, as a value that can be compared with what its peers call, and printed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "troika/comm/communicator.h"

namespace troika::inproc {

enum class Call {
  none,
  all_reduce_sum,
  all_reduce_weighted_mean,
  reduce_scatter_sum,
  all_gather,
  broadcast,
  send,
  receive,
  barrier,
  start_all_reduce_sum,
  wait,
  sub,
};

std::string_view name_of(Call call);

struct Operation {
  Call call = Call::none;
  ElementType type = ElementType::float32;
  int64_t count = 0;
  int root = -1;  // broadcast only; numbered as in the world
  bool operator==(const Operation&) const = default;
};

/// "all_reduce_sum of 12 float32", "broadcast of 3 int64 from rank 1", "barrier".
std::string to_string(const Operation& operation);

}  // namespace troika::inproc
