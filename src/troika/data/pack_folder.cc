#include "troika/data/pack_folder.h"

#include "troika/base/error.h"
#include "troika/data/manifest.h"

namespace troika {

void require_replaceable(const PackOptions& options) {
  std::error_code error;
  if (!options.overwrite || !std::filesystem::exists(options.output, error)) return;
  const bool folder = std::filesystem::is_directory(options.output, error);
  if (folder && (std::filesystem::is_empty(options.output, error) ||
                 std::filesystem::exists(options.output / kManifestName, error))) {
    return;
  }
  fail_usage("{} is no dataset, so --overwrite won't remove it; choose another name",
             options.output.string());
}

std::string joined_paths(const std::vector<Path>& files) {
  std::string joined;
  for (const Path& file : files) joined += (joined.empty() ? "" : ", ") + file.string();
  return joined;
}

void seal(const Dataset& dataset, FolderInProgress& folder, PackReport& report) {
  const std::string manifest = manifest_json(dataset);
  write_whole(folder.path() / kManifestName, manifest);
  report.dataset = parse_manifest(manifest, folder.path() / kManifestName);
  report.dataset.folder = dataset.folder;
  folder.commit();
}

}  // namespace troika
