// What a dataset holds, written down again: a value as the text that it had, a text as a cell of a CSV. Pure
// functions; thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "troika/data/source.h"

namespace troika {

/// The value of `column` in row `row` of `rows`, as it was in the source as far as the dataset knows; "" for
/// null. Throws Error for a category that the manifest doesn't list.
std::string cell_text(const Dataset& dataset, const RowBuffer& rows, int64_t row, const Column& column);

/// In quotes, those in it doubled.
std::string csv_quoted(std::string_view text);

/// As one cell of a CSV: in quotes if a comma, a quote, a line's end or a blank at its ends asks for them.
std::string csv_cell(std::string_view text);

}  // namespace troika
