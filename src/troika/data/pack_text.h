// Any files to a dataset of their bytes (text_data.h), in one pass within a fixed memory. Threading: runs on
// the calling thread; files are read far faster than a model reads them, so there are no others.
#pragma once

#include <functional>

#include "troika/data/pack.h"

namespace troika {

/// Of the options: files, output, overwrite, shard_bytes and checksum_block_bytes. gzip and zstd are
/// unpacked. Throws Error for a file that is missing, empty or no file, UsageError for one that is named
/// twice; then nothing is left at the output. Ends with an Error when interrupted().
PackReport pack_text(const PackOptions& options, const std::function<void(const PackProgress&)>& progress);

}  // namespace troika
