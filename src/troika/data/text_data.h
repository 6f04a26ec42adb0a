// Text as a dataset: a row is a byte, in the category column "byte", whose code is the byte's value. Several
// files have a second column, "file", that tells them apart: each is a series. Threading: pure functions.
#pragma once

#include <string>
#include <vector>

#include "troika/data/dataset.h"

namespace troika {

constexpr int kByteValues = 256;
constexpr const char* kByteColumn = "byte";
constexpr const char* kFileColumn = "file";

/// The byte as text: itself if it can be printed, else "\x0a".
std::vector<std::string> byte_names();

/// Whether `troika pack --text` made it. Columns say so, not a flag: a table whose one category column has
/// these 256 values is a text.
bool is_text(const Dataset& dataset);

/// Whether it is of several files.
bool has_files(const Dataset& text);

}  // namespace troika
