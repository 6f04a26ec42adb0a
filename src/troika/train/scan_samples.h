// Reading samples one after the other, rows or windows alike, within a bounded memory. No torch.
// Threading: a function without state.
#pragma once

#include <functional>

#include "troika/data/source.h"

namespace troika {

/// Calls `visit` with the samples that start at `starts`, in dataset order, some at a time; each is `span`
/// rows.
void scan_samples(const Dataset& dataset, const RowSet& starts, int64_t span,
                  const std::function<void(const RowBuffer&)>& visit);

}  // namespace troika
