// The commands that need torch live in a shared object that is opened only when one of them runs, so that
// everything else starts in milliseconds.
#pragma once

namespace troika {

/// The address of `symbol` in the plug-in. Throws UsageError if this build has none.
void* plugin_symbol(const char* symbol);

template <typename Function>
Function plugin_function(const char* symbol) {
  return reinterpret_cast<Function>(plugin_symbol(symbol));
}

}  // namespace troika
