#include "troika/data/text_data.h"

#include <fmt/format.h>

namespace troika {

std::vector<std::string> byte_names() {
  std::vector<std::string> names;
  for (int byte = 0; byte < kByteValues; ++byte) {
    const bool printable = byte >= 0x20 && byte < 0x7F;
    names.push_back(printable ? std::string(1, static_cast<char>(byte)) : fmt::format("\\x{:02x}", byte));
  }
  return names;
}

bool is_text(const Dataset& dataset) {
  if (dataset.columns.empty() || dataset.columns.size() > 2) return false;
  const Column& byte = dataset.columns[0];
  const bool bytes = byte.name == kByteColumn && byte.type == ColumnType::category && byte.nulls == 0 &&
                     byte.categories == byte_names();
  if (dataset.columns.size() == 1) return bytes;
  const Column& file = dataset.columns[1];
  return bytes && file.name == kFileColumn && file.type == ColumnType::category && file.nulls == 0;
}

bool has_files(const Dataset& text) { return text.columns.size() == 2; }

}  // namespace troika
