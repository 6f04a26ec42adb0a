#include "troika/train/checkpoint.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "support/error_of.h"
#include "support/temporary_folder.h"
#include "troika/base/error.h"
#include "troika/base/random.h"
#include "troika/train/safetensors.h"

namespace troika {
namespace {

Checkpoint sample() {
  return {{{"weights.a", at::rand({3, 5})},
           {"weights.b", at::rand({2}, at::kDouble)},
           {"c", at::arange(7)},
           {"none", at::empty({0, 4})},
           {"half", at::rand({4}).to(at::kBFloat16)},
           {"scalar", at::rand({})},
           {"not contiguous", at::rand({4, 6}).t()}},
          {{"note", "a \"quoted\" \n word"}}};
}

void write_text(const Path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

std::string with_header(const std::string& json, const std::string& data = "") {
  const uint64_t length = json.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + json + data;
}

std::string error_of_reading(const Path& path) {
  return error_of([&] { read_checkpoint(path); });
}

TEST(Checkpoint, RoundTripsBitForBit) {
  const TemporaryFolder folder;
  const Checkpoint before = sample();
  write_checkpoint(folder / "c.safetensors", before);
  const Checkpoint after = read_checkpoint(folder / "c.safetensors");
  ASSERT_EQ(after.tensors.size(), before.tensors.size());
  EXPECT_EQ(after.metadata, before.metadata);
  for (const NamedTensor& named : before.tensors) {
    const auto found =
        std::ranges::find_if(after.tensors, [&](const auto& t) { return t.name == named.name; });
    ASSERT_NE(found, after.tensors.end()) << named.name;
    EXPECT_EQ(found->tensor.scalar_type(), named.tensor.scalar_type());
    EXPECT_TRUE(at::equal(found->tensor, named.tensor)) << named.name;
  }
}

TEST(Checkpoint, HeaderIsPaddedToEightBytes) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "c.safetensors", sample());
  const std::string text = read_text(folder / "c.safetensors");
  uint64_t length = 0;
  std::copy_n(text.data(), 8, reinterpret_cast<char*>(&length));
  EXPECT_EQ(length % 8, 0U);
  EXPECT_EQ(text[8], '{');
}

TEST(Checkpoint, EveryFlippedBitAndEveryCutIsFound) {
  const TemporaryFolder folder;
  const Path path = folder / "c.safetensors";
  write_checkpoint(path, {{{"a", at::arange(4)}, {"b", at::rand({3})}}, {{"step", "12"}}});
  const std::string good = read_text(path);
  for (size_t byte = 0; byte < good.size(); ++byte) {
    std::string bad = good;
    // Bit 5 changes a letter's case, bits 0 and 1 turn digits into digits: the JSON often stays valid.
    for (const int bit : {0, 1, 5}) {
      bad[byte] = static_cast<char>(good[byte] ^ (1 << bit));
      write_text(path, bad);
      const std::string error = error_of_reading(path);
      EXPECT_NE(error.find("c.safetensors"), std::string::npos)
          << "byte " << byte << " bit " << bit << ": " << error;
    }
    write_text(path, good.substr(0, byte));
    EXPECT_NE(error_of_reading(path), "no error") << "cut at " << byte;
  }
  write_text(path, good + "x");
  EXPECT_NE(error_of_reading(path), "no error");
}

TEST(Checkpoint, RandomDamageNeverPasses) {
  const TemporaryFolder folder;
  const Path path = folder / "c.safetensors";
  write_checkpoint(path, sample());
  const std::string good = read_text(path);
  for (uint64_t round = 0; round < 2000; ++round) {
    std::string bad = good;
    const auto draw = philox(7, 0, round);
    for (uint32_t i = 0; i <= draw[0] % 4; ++i) {
      const auto where = philox(8, i, round);
      bad[where[0] % bad.size()] = static_cast<char>(where[1]);
    }
    if (bad == good) continue;
    write_text(path, bad);
    EXPECT_NE(error_of_reading(path), "no error") << "round " << round;
  }
}

TEST(Checkpoint, ReadsFilesOfOthersButChecksEveryField) {
  const TemporaryFolder folder;
  const Path path = folder / "x.safetensors";
  const auto error = [&](const std::string& json, const std::string& data) {
    write_text(path, with_header(json, data));
    const std::string what = error_of_reading(path);
    return what.starts_with(path.string()) ? what.substr(path.string().size()) : what;
  };
  const std::string four = "abcd";
  EXPECT_EQ(error(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", four), "no error");
  EXPECT_EQ(error(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", four),
            ": tensor \"a\" ends at byte 8 of the data, but the file holds 4: it was cut short");
  EXPECT_EQ(error(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", four),
            ": tensor \"a\" has 0 to 4 as its bytes, expected 8 bytes by its shape");
  EXPECT_EQ(error(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", four),
            ": tensor \"a\" has dtype \"U8\", expected F32, F64, BF16 or I64");
  EXPECT_EQ(error(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", four),
            ": the shape of tensor \"a\" is -1, expected a whole number of at least 0");
  EXPECT_EQ(error(R"({"a":{"dtype":"F32","shape":[4611686018427387904,8],"data_offsets":[0,4]}})", four),
            ": the shape of tensor \"a\" overflows");
  EXPECT_EQ(error(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],)"
                  R"("data_offsets":[0,4]}})",
                  four),
            ": tensor \"b\" begins at byte 0 of the data, expected 4: tensors overlap or leave a gap");
  EXPECT_EQ(error(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", four + "more"),
            ": the tensors take 4 bytes, the file holds 8");
  EXPECT_EQ(error(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],)"
                  R"("data_offsets":[0,4]}})",
                  four),
            ": the header names \"a\" twice");
  EXPECT_EQ(error(R"([1])", ""), ": the header is not a JSON object");
  EXPECT_EQ(error(R"({"__metadata__":{"a":1}})", ""), ": __metadata__ \"a\" is not text");
  write_text(path, std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8));
  EXPECT_NE(error_of_reading(path).find("doesn't fit in a file of 8"), std::string::npos);
  write_text(path, "");
  EXPECT_NE(error_of_reading(path).find("has 0 bytes"), std::string::npos);
}

// A limit on the size of files stands in for a full disk: the write fails half-way in the same place.
TEST(Checkpoint, AFullDiskLeavesTheOldOne) {
  const TemporaryFolder folder;
  const Path path = folder / "c.safetensors";
  write_checkpoint(path, {{{"a", at::arange(4)}}, {}});
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      write_checkpoint(path, {{{"a", at::empty({100000}).fill_(1.0)}}, {}});
    } catch (const Error&) {
      ::_exit(7);
    }
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_TRUE(at::equal(read_checkpoint(path).tensors[0].tensor, at::arange(4)));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

}  // namespace
}  // namespace troika
