// manifest.json: text to value and back. Pure functions; thread-safe.
#pragma once

#include <string_view>

#include "troika/data/dataset.h"

namespace troika {

constexpr const char* kManifestName = "manifest.json";
constexpr const char* kRejectsName = "rejects.csv";

/// Checks everything that the text alone can tell. `path` is for messages. Leaves `folder` empty.
Dataset parse_manifest(std::string_view text, const Path& path);

}  // namespace troika
