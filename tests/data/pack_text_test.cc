#include "troika/data/pack_text.h"

#include <gtest/gtest.h>

#include <archive.h>
#include <archive_entry.h>

#include <set>

#include "packing.h"
#include "troika/data/text_data.h"
#include "troika/data/windows.h"

namespace troika {
namespace {

const auto kNoProgress = [](const PackProgress&) {};

/// The bytes of a file's rows; with one file `file` is 0.
std::string bytes_of(const Dataset& dataset, int file = 0) {
  std::string bytes;
  scan_rows(dataset, RowSet(dataset.rows, true), [&](const RowBuffer& rows) {
    for (int64_t row = 0; row < rows.rows; ++row) {
      const float* const at = rows.floats.data() + row * dataset.float_columns;
      if (!has_files(dataset) || at[1] == static_cast<float>(file))
        bytes += static_cast<char>(static_cast<unsigned char>(at[0]));
    }
  });
  return bytes;
}

/// Each byte value, in an order without a period of a power of two.
std::string some_bytes(size_t count) {
  std::string bytes;
  for (size_t i = 0; i < count; ++i) bytes += static_cast<char>((i * i + i / 7) % 256);
  return bytes;
}

void write_gzip(const Path& path, const std::string& text) {
  ::archive* const writer = ::archive_write_new();
  ::archive_write_add_filter_gzip(writer);
  ::archive_write_set_format_raw(writer);
  ::archive_write_open_filename(writer, path.c_str());
  archive_entry* const entry = ::archive_entry_new();
  ::archive_entry_set_filetype(entry, AE_IFREG);
  ::archive_write_header(writer, entry);
  ::archive_write_data(writer, text.data(), text.size());
  ::archive_entry_free(entry);
  ::archive_write_free(writer);
}

TEST(PackText, GivesBackEveryByte) {
  const TemporaryFolder folder;
  const std::string text = "a,\"b\r\n\n" + some_bytes(3'000) + std::string(5, '\0') + "\xEF\xBB\xBF no end";
  write_file(folder / "in.txt", text);
  const PackReport report = pack_text(pack_options({folder / "in.txt"}, folder / "out"), kNoProgress);
  const Dataset dataset = open_dataset(folder / "out");
  EXPECT_EQ(bytes_of(dataset), text);
  EXPECT_EQ(dataset.rows, static_cast<int64_t>(text.size()));
  EXPECT_EQ(report.text_bytes, text.size());
  EXPECT_EQ(report.dataset.fingerprint, dataset.fingerprint);
  EXPECT_TRUE(is_text(dataset));
  EXPECT_FALSE(has_files(dataset));
  EXPECT_EQ(types_of(dataset), "category");
  EXPECT_EQ(dataset.columns[0].minimum, 0);
  EXPECT_EQ(dataset.columns[0].maximum, 255);
  EXPECT_EQ(dataset.row_bytes(), 4);
  check_dataset(dataset);
}

TEST(PackText, NamesBytesSoThatAllNamesDiffer) {
  const std::vector<std::string> names = byte_names();
  ASSERT_EQ(names.size(), 256u);
  EXPECT_EQ(names['a'], "a");
  EXPECT_EQ(names[' '], " ");
  EXPECT_EQ(names['\n'], "\\x0a");
  EXPECT_EQ(names[0xFF], "\\xff");
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), 256u);
}

TEST(PackText, OneHugeLineGoesThroughSeveralReadsAndShards) {
  const TemporaryFolder folder;
  const std::string text(3'000'017, 'x');
  write_file(folder / "in.txt", text.substr(1) + "y");
  PackOptions options = pack_options({folder / "in.txt"}, folder / "out");
  options.shard_bytes = 1 << 20;
  pack_text(options, kNoProgress);
  const Dataset dataset = open_dataset(folder / "out");
  EXPECT_EQ(bytes_of(dataset), text.substr(1) + "y");
  EXPECT_EQ(dataset.shards.size(), 12u);
  EXPECT_EQ(dataset.columns[0].minimum, 'x');
  EXPECT_EQ(dataset.columns[0].maximum, 'y');
}

TEST(PackText, SeveralFilesAreSeriesInTheirOrder) {
  const TemporaryFolder folder;
  const std::string first = some_bytes(700), second = "zweite\n", third = some_bytes(50);
  write_file(folder / "b", first);
  write_file(folder / "a", second);
  write_gzip(folder / "c.gz", third);
  pack_text(pack_options({folder / "b", folder / "a", folder / "c.gz"}, folder / "out"), kNoProgress);
  const Dataset dataset = open_dataset(folder / "out");
  EXPECT_TRUE(is_text(dataset));
  ASSERT_TRUE(has_files(dataset));
  EXPECT_EQ(bytes_of(dataset, 0), first);
  EXPECT_EQ(bytes_of(dataset, 1), second);
  EXPECT_EQ(bytes_of(dataset, 2), third);
  EXPECT_EQ(dataset.column("file").categories[1], (folder / "a").string());
  WindowOptions windows;
  windows.window = 4;
  windows.series = {"file"};
  const SeriesMap series = find_series(dataset, windows);
  ASSERT_EQ(series.segments.size(), 3u);
  EXPECT_EQ(series.segments[1].rows.begin, 700);
  EXPECT_EQ(series.segments[1].rows.end, 707);
}

TEST(PackText, WhatACsvCouldNotHoldIsTakenAsItIs) {
  const TemporaryFolder folder;
  for (const std::string& text :
       {std::string("%PDF-1.4"), std::string("PK\x03\x04 zip"), std::string("\xFF\xFEU"), std::string("x")}) {
    write_file(folder / "in", text);
    PackOptions options = pack_options({folder / "in"}, folder / "out");
    options.overwrite = true;
    pack_text(options, kNoProgress);
    EXPECT_EQ(bytes_of(open_dataset(folder / "out")), text);
  }
}

TEST(PackText, DependsOnTheBytesAloneAndSaysWhichTheyWere) {
  const TemporaryFolder folder;
  write_file(folder / "in", some_bytes(5'000));
  const auto fingerprint = [&](const char* output) {
    return pack_text(pack_options({folder / "in"}, folder / output), kNoProgress).dataset.source_fingerprint;
  };
  const uint64_t one = fingerprint("one");
  EXPECT_EQ(fingerprint("two"), one);
  EXPECT_EQ(file_text(folder / "one/manifest.json"), file_text(folder / "two/manifest.json"));
  EXPECT_EQ(file_text(folder / "one/x-000000.npy"), file_text(folder / "two/x-000000.npy"));
  write_file(folder / "in", some_bytes(4'999) + "!");
  EXPECT_NE(fingerprint("three"), one);
}

TEST(PackText, RefusesWhatIsNoFileOrHasNoByteAndLeavesNothing) {
  const TemporaryFolder folder;
  write_file(folder / "text", "some text");
  write_file(folder / "empty", "");
  const auto error = [&](std::vector<Path> files) {
    return error_of([&] { pack_text(pack_options(std::move(files), folder / "out"), kNoProgress); });
  };
  EXPECT_SAYS(error({folder / "none"}), "none");
  EXPECT_SAYS(error({folder / "empty"}), "empty is empty; nothing was packed");
  EXPECT_SAYS(error({folder / "text", folder / "empty"}), "leave it out");
  EXPECT_SAYS(error({folder.path()}), "is a folder, expected a file");
  EXPECT_SAYS(error({folder / "text", folder / "text"}), "is named twice");
  expect_empty_but(folder, {"empty", "text"});
  pack_text(pack_options({folder / "text"}, folder / "out"), kNoProgress);
  EXPECT_SAYS(error({folder / "text"}), "out");
  EXPECT_EQ(bytes_of(open_dataset(folder / "out")), "some text");
}

TEST(PackText, ATableIsNoText) {
  const TemporaryFolder folder;
  EXPECT_FALSE(is_text(pack_text(folder, "byte\na\nb\n").dataset));
}

}  // namespace
}  // namespace troika
