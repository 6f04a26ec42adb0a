// How a dataset's column is shown in a table (base/table.h) and as JSON. Pure; thread-safe.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "troika/data/dataset.h"

namespace troika {

/// name, type, nulls, min, max, mean.
std::vector<std::string> column_summary(const Column& column);

nlohmann::ordered_json column_json(const Column& column);

}  // namespace troika
