#include "troika/comm/inproc/operation.h"

#include <fmt/format.h>

namespace troika::inproc {

std::string_view name_of(Call call) {
  switch (call) {
    case Call::none:
      return "nothing";
    case Call::all_reduce_sum:
      return "all_reduce_sum";
    case Call::all_reduce_weighted_mean:
      return "all_reduce_weighted_mean";
    case Call::reduce_scatter_sum:
      return "reduce_scatter_sum";
    case Call::all_gather:
      return "all_gather";
    case Call::broadcast:
      return "broadcast";
    case Call::send:
      return "send";
    case Call::receive:
      return "receive";
    case Call::barrier:
      return "barrier";
    case Call::start_all_reduce_sum:
      return "start_all_reduce_sum";
    case Call::wait:
      return "wait(all_reduce_sum)";
    case Call::sub:
      return "sub";
  }
  return "";
}

std::string to_string(const Operation& operation) {
  if (operation.call == Call::barrier) return "barrier";
  std::string text =
      fmt::format("{} of {} {}", name_of(operation.call), operation.count, troika::name_of(operation.type));
  if (operation.call == Call::broadcast) text += fmt::format(" from rank {}", operation.root);
  return text;
}

}  // namespace troika::inproc
