// What the lanes of a pipeline tell each other by name: texts, and named tensors that one of them collects.
// Threading: collective over the communicator.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "troika/comm/communicator.h"
#include "troika/parallel/model.h"
#include "troika/parallel/tensor_link.h"

namespace troika {

/// Every rank's text, in rank order.
std::vector<std::string> gather_texts(Communicator& communicator, std::string_view text);

std::vector<std::string> names_of(const std::vector<NamedTensor>& tensors);

/// The names of every rank's tensors, in rank order.
std::vector<std::string> gather_names(Communicator& communicator, const std::vector<NamedTensor>& tensors);

/// Rank 0 gets every rank's tensors, in rank order; the others keep their own. `link` is one over the same
/// ranks.
std::vector<NamedTensor> gather_named(Communicator& communicator, TensorLink& link, int64_t step,
                                      std::vector<NamedTensor> mine);

}  // namespace troika
