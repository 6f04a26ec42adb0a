// What every way of packing does with the folder that it writes. Internal to packing. Threading: pure
// functions.
#pragma once

#include <string>

#include "troika/base/file.h"
#include "troika/data/pack.h"

namespace troika {

/// Throws UsageError if --overwrite would remove something that is no dataset.
void require_replaceable(const PackOptions& options);

/// As a manifest names its sources.
std::string joined_paths(const std::vector<Path>& files);

/// Writes the manifest, reads it back into `report`, and gives the folder its name.
void seal(const Dataset& dataset, FolderInProgress& folder, PackReport& report);

}  // namespace troika
