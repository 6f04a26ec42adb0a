#include "troika/train/safetensors.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <set>

#include "troika/base/error.h"
#include "troika/base/text.h"

namespace troika {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMostHeaderBytes = 100'000'000;  // what other readers of the format accept
static_assert(std::endian::native == std::endian::little, "the format is little endian");

struct TypeName {
  StoredType type;
  const char* name;
  int64_t bytes;
};
constexpr TypeName kTypes[] = {{StoredType::float32, "F32", 4},
                               {StoredType::float64, "F64", 8},
                               {StoredType::bfloat16, "BF16", 2},
                               {StoredType::int64, "I64", 8}};

const TypeName& entry_of(StoredType type) {
  return *std::ranges::find_if(kTypes, [type](const TypeName& entry) { return entry.type == type; });
}

/// Parses JSON in which no object has a key twice: of two entries for one tensor none can be trusted.
Json parse_strictly(std::string_view text, const Path& path) {
  std::vector<std::set<std::string>> keys;
  const auto on_event = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
      fail("{}: the header names \"{}\" twice", path.string(), printable(value.get<std::string>(), 60));
    }
    if (keys.size() > 8) fail("{}: the header is nested too deeply", path.string());
    return true;
  };
  try {
    Json json = Json::parse(text, on_event);
    if (!json.is_object()) fail("{}: the header is not a JSON object", path.string());
    return json;
  } catch (const Json::exception& error) {
    fail("{}: the header is not JSON ({}); the file is damaged or no safetensors file", path.string(),
         printable(error.what(), 120));
  }
}

uint64_t whole_number(const Json& value, const std::string& what, const Path& path) {
  if (!value.is_number_integer() || (value.is_number_integer() && !value.is_number_unsigned())) {
    fail("{}: {} is {}, expected a whole number of at least 0", path.string(), what,
         printable(value.dump(), 40));
  }
  return value.get<uint64_t>();
}

StoredTensor read_tensor(const std::string& name, const Json& json, uint64_t data_size, const Path& path) {
  const std::string what = fmt::format("tensor \"{}\"", printable(name, 80));
  if (!json.is_object() || json.size() != 3 || !json.contains("dtype") || !json.contains("shape") ||
      !json.contains("data_offsets")) {
    fail("{}: {} should have dtype, shape and data_offsets, and nothing else", path.string(), what);
  }
  StoredTensor tensor;
  tensor.name = name;
  const Json& dtype = json["dtype"];
  const auto* const type =
      std::ranges::find_if(kTypes, [&](const TypeName& entry) { return dtype == entry.name; });
  if (type == std::end(kTypes)) {
    fail("{}: {} has dtype {}, expected F32, F64, BF16 or I64", path.string(), what,
         printable(dtype.dump(), 20));
  }
  tensor.type = type->type;
  if (!json["shape"].is_array() || json["shape"].size() > 64) {
    fail("{}: the shape of {} is not a list of at most 64 numbers", path.string(), what);
  }
  auto bytes = static_cast<uint64_t>(type->bytes);
  for (const Json& extent : json["shape"]) {
    const uint64_t size = whole_number(extent, "the shape of " + what, path);
    if (size > INT64_MAX || __builtin_mul_overflow(bytes, size, &bytes)) {
      fail("{}: the shape of {} overflows", path.string(), what);
    }
    tensor.shape.push_back(static_cast<int64_t>(size));
  }
  const Json& offsets = json["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2) {
    fail("{}: data_offsets of {} should be two numbers", path.string(), what);
  }
  tensor.begin = whole_number(offsets[0], "data_offsets of " + what, path);
  tensor.end = whole_number(offsets[1], "data_offsets of " + what, path);
  if (tensor.begin > tensor.end || tensor.end - tensor.begin != bytes) {
    fail("{}: {} has {} to {} as its bytes, expected {} bytes by its shape", path.string(), what,
         tensor.begin, tensor.end, bytes);
  }
  if (tensor.end > data_size) {
    fail("{}: {} ends at byte {} of the data, but the file holds {}: it was cut short", path.string(), what,
         tensor.end, data_size);
  }
  return tensor;
}

}  // namespace

int64_t size_of(StoredType type) { return entry_of(type).bytes; }

std::string header_bytes(const StoredHeader& header) {
  nlohmann::ordered_json json;
  if (!header.metadata.empty()) json["__metadata__"] = header.metadata;
  for (const StoredTensor& tensor : header.tensors) {
    json[tensor.name] = {{"dtype", entry_of(tensor.type).name},
                         {"shape", tensor.shape},
                         {"data_offsets", {tensor.begin, tensor.end}}};
  }
  std::string text = json.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  std::string out(sizeof length, '\0');
  std::copy_n(reinterpret_cast<const char*>(&length), sizeof length, out.begin());
  return out + text;
}

StoredHeader parse_header(std::string_view text, uint64_t data_size, const Path& path) {
  const Json json = parse_strictly(text, path);
  StoredHeader header;
  for (const auto& [name, value] : json.items()) {
    if (name != "__metadata__") {
      header.tensors.push_back(read_tensor(name, value, data_size, path));
      continue;
    }
    if (!value.is_object()) fail("{}: __metadata__ is not an object", path.string());
    for (const auto& [key, entry] : value.items()) {
      if (!entry.is_string()) {
        fail("{}: __metadata__ \"{}\" is not text", path.string(), printable(key, 60));
      }
      header.metadata[key] = entry.get<std::string>();
    }
  }
  std::ranges::sort(header.tensors, {}, [](const StoredTensor& t) { return std::pair(t.begin, t.end); });
  uint64_t at = 0;
  for (const StoredTensor& tensor : header.tensors) {
    if (tensor.begin != at) {
      fail("{}: tensor \"{}\" begins at byte {} of the data, expected {}: tensors overlap or leave a gap",
           path.string(), printable(tensor.name, 80), tensor.begin, at);
    }
    at = tensor.end;
  }
  if (at != data_size) {
    fail("{}: the tensors take {} bytes, the file holds {}", path.string(), at, data_size);
  }
  return header;
}

StoredHeader read_header(const FileHandle& file, uint64_t file_size, const Path& path) {
  uint64_t length = 0;
  if (file_size < sizeof length) {
    fail("{} has {} bytes: it was cut short, or is no safetensors file", path.string(), file_size);
  }
  read_exactly(file, std::as_writable_bytes(std::span(&length, 1)), 0, path);
  if (length > kMostHeaderBytes || length > file_size - sizeof length) {
    fail("{}: a header of {} bytes doesn't fit in a file of {}: it was cut short, or is no safetensors file",
         path.string(), length, file_size);
  }
  std::string bytes(sizeof length + length, '\0');
  read_exactly(file, std::as_writable_bytes(std::span(bytes)), 0, path);
  const std::string_view text = std::string_view(bytes).substr(sizeof length);
  StoredHeader header = parse_header(text, file_size - bytes.size(), path);
  header.bytes = std::move(bytes);
  return header;
}

}  // namespace troika
