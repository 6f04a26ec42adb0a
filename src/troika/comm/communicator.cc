#include "troika/comm/communicator.h"

namespace troika {

int64_t size_of(ElementType type) {
  switch (type) {
    case ElementType::float32:
      return 4;
    case ElementType::float64:
      return 8;
    case ElementType::bfloat16:
      return 2;
    case ElementType::int64:
      return 8;
  }
  return 0;
}

std::string_view name_of(ElementType type) {
  switch (type) {
    case ElementType::float32:
      return "float32";
    case ElementType::float64:
      return "float64";
    case ElementType::bfloat16:
      return "bfloat16";
    case ElementType::int64:
      return "int64";
  }
  return "";
}

}  // namespace troika
