#include "troika/app/plugin.h"

#include <dlfcn.h>

#include "troika/base/error.h"
#include "troika/base/file.h"
#include "troika/base/memory.h"

namespace troika {
namespace {

constexpr const char* kPlugin = "libtroika_app_train.so";

// Beside the command in a build tree, in ../lib when installed.
Path find_plugin() {
  const Path folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  for (const Path& candidate : {folder / kPlugin, folder / "../lib" / kPlugin}) {
    if (std::filesystem::exists(candidate)) return candidate;
  }
  fail_usage("this build has no training ({} is not beside the command); build the preset release", kPlugin);
}

}  // namespace

void* plugin_symbol(const char* symbol) {
  const Path path = find_plugin();
  prefer_huge_pages();
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    fail("can't load {}: {}; if LibTorch has moved, run make setup and build again", path.string(),
         ::dlerror());
  }
  void* const address = ::dlsym(library, symbol);
  TROIKA_ASSERT(address != nullptr, fmt::format("{} has no {}", path.string(), symbol));
  return address;
}

}  // namespace troika
