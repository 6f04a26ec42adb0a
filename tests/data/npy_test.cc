#include "troika/data/npy.h"

#include <gtest/gtest.h>

#include <cstring>

#include "data/packing.h"
#include "troika/base/random.h"
#include "troika/data/npy_writer.h"

namespace troika {
namespace {

// Checked against the format's description: magic, version 1.0, little-endian length, a Python literal,
// padded with blanks to a multiple of 64 and ended by a line feed.
TEST(Npy, TheHeaderIsWhatNumpyReads) {
  const std::string header = npy_header(NpyType::float32, 336776, 19);
  ASSERT_EQ(header.size(), 128U);
  EXPECT_EQ(header.substr(0, 10), std::string("\x93NUMPY\x01\x00\x76\x00", 10));
  const std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': (336776, 19), }";
  EXPECT_EQ(header.substr(10, text.size()), text);
  EXPECT_EQ(header.find_first_not_of(' ', 10 + text.size()), 127U);
  EXPECT_EQ(header.back(), '\n');
  EXPECT_NE(npy_header(NpyType::int64, INT64_MAX, INT32_MAX).find("'<i8'"), std::string::npos);
}

TEST(Npy, ChecksumsAreThoseOfTheFilesBlocks) {
  const TemporaryFolder folder;
  for (const size_t rows : {1, 3, 31, 32, 33, 200}) {
    std::vector<float> values(rows * 2);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    NpyWriter writer(folder / "a.npy", NpyType::float32, 2, 256);
    writer.append(std::as_bytes(std::span(values).first(2)));
    writer.append(std::as_bytes(std::span(values).subspan(2)));
    writer.close();
    const std::string file = file_text(folder / "a.npy");
    ASSERT_EQ(file.size(), 128 + rows * 8);
    EXPECT_EQ(file.substr(0, 128), npy_header(NpyType::float32, static_cast<int64_t>(rows), 2));
    EXPECT_EQ(std::memcmp(file.data() + 128, values.data(), rows * 8), 0);
    ASSERT_EQ(writer.checksums().size(), (file.size() + 255) / 256);
    for (size_t i = 0; i < writer.checksums().size(); ++i) {
      EXPECT_EQ(writer.checksums()[i], hash64(std::string_view(file).substr(i * 256, 256)));
    }
  }
}

}  // namespace
}  // namespace troika
