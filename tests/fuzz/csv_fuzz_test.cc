// Random mutations of small inputs, the same on every run: whatever the bytes, the importer and the
// manifest reader end with a result or with a troika::Error. Meant for the sanitizer builds.
#include <gtest/gtest.h>

#include <array>

#include "data/packing.h"
#include "support/fuzz.h"
#include "troika/data/csv_parse.h"
#include "troika/data/manifest.h"

namespace troika {
namespace {

std::string mutated(std::string text, FuzzRandom& random, const std::vector<std::string>& words) {
  const size_t changes = 1 + random.below(6);
  for (size_t i = 0; i < changes; ++i) mutate(text, random, words);
  return text;
}

constexpr std::array kReaders = {CellReader::float_number, CellReader::int_number, CellReader::boolean,
                                 CellReader::timestamp,    CellReader::category,   CellReader::skip};

const std::vector<std::string> kCsvSeeds = {
    "a,b,c\n1,2.5,x\n3,,\"y,z\"\n",
    "when;what\r\n2013-01-01T10:00:00Z;\"say \"\"hi\"\"\"\r\n2013-01-01 10:00:00.123+02:00;true\r\n",
    "\xEF\xBB\xBFid\tname\n007\t\xC3\xA9t\xC3\xA9\n-9223372036854775808\t\"two\nlines\"\n",
    "x|y|z\n1e400|-inf|nan\nNA|--|?\n16777217|0.1|.5\n",
};
const std::vector<std::string> kCsvWords = {"\"",
                                            "\"\"",
                                            ",",
                                            "\n",
                                            "\r\n",
                                            "\r",
                                            ";",
                                            std::string(1, '\0'),
                                            "\xFF",
                                            "1e999",
                                            "99999999999999999999",
                                            "2013-02-30",
                                            "-",
                                            "\"\n\"",
                                            ",,,,"};

TEST(Fuzz, ScannerAndParser) {
  constexpr int kRuns = 20'000;
  const TemporaryFolder folder;
  const Path path = folder / "fuzz.csv";
  int64_t rows = 0, rejects = 0, refused = 0;
  for (int run = 0; run < kRuns; ++run) {
    FuzzRandom random(static_cast<uint64_t>(run));
    const std::string text = mutated(kCsvSeeds[random.below(kCsvSeeds.size())], random, kCsvWords);
    write_file(path, text);
    try {
      const Sniff sniff = sniff_csv(path);
      const CsvLimits limits{.block_bytes = 1 + random.below(64), .record_bytes = 64 + random.below(200)};
      std::vector<CellReader> readers;
      for (size_t i = 0; i < sniff.columns.size(); ++i)
        readers.push_back(kReaders[random.below(kReaders.size())]);
      const RowLayout layout(readers);
      CsvReader reader({path}, sniff.dialect, sniff.names(), limits);
      BlockParser parser(layout, sniff.dialect, limits);
      CsvBlock block;
      Chunk chunk;
      uint64_t bytes = 0;
      while (reader.next(block)) {
        ASSERT_GT(block.size, 0U);
        bytes += block.size;
        parser.parse(block, chunk);
        ASSERT_EQ(chunk.floats.size(), static_cast<size_t>(chunk.rows * layout.float_columns));
        ASSERT_EQ(chunk.ints.size(), static_cast<size_t>(chunk.rows * layout.int_columns));
        for (const Reject& reject : chunk.rejects) ASSERT_LE(reject.end, block.size);
        rows += chunk.rows;
        rejects += static_cast<int64_t>(chunk.rejects.size());
      }
      ASSERT_EQ(reader.text_bytes(), text.size()) << "bytes lost in run " << run;
    } catch (const Error&) {
      ++refused;
    }
  }
  std::printf("%d runs: %lld rows, %lld rejects, %lld files refused\n", kRuns, static_cast<long long>(rows),
              static_cast<long long>(rejects), static_cast<long long>(refused));
  EXPECT_GT(rows, kRuns / 4);
  EXPECT_GT(rejects, kRuns / 20);
  EXPECT_LT(refused, kRuns);
}

TEST(Fuzz, WholePack) {
  constexpr int kRuns = 400;
  int64_t packed = 0;
  for (int run = 0; run < kRuns; ++run) {
    FuzzRandom random(static_cast<uint64_t>(1'000'000 + run));
    const TemporaryFolder folder;
    const std::string text = mutated(kCsvSeeds[random.below(kCsvSeeds.size())], random, kCsvWords);
    write_file(folder / "in.csv", text);
    try {
      PackOptions options = pack_options({folder / "in.csv"}, folder / "out");
      options.limits.block_bytes = 1 + random.below(64);
      pack_with(options);
      const Dataset dataset = open_dataset(folder / "out");
      check_dataset(dataset);
      ASSERT_EQ(static_cast<int64_t>(rows_of(dataset).size()), dataset.rows);
      ++packed;
    } catch (const Error&) {
      expect_empty_but(folder, {"in.csv"});
    }
  }
  std::printf("%d runs: %lld packed\n", kRuns, static_cast<long long>(packed));
  EXPECT_GT(packed, kRuns / 10);
}

TEST(Fuzz, Manifest) {
  constexpr int kRuns = 20'000;
  const TemporaryFolder folder;
  pack_text(folder, "id,word,when\n1,a,2013-01-01\n2,b,2013-01-02\n");
  const std::string good = file_text(folder / "out" / kManifestName);
  const std::vector<std::string> words = {"0",          "-1",
                                          "1e999",      "null",
                                          "[]",         "{}",
                                          "\"\"",       "18446744073709551615",
                                          "\"floats\"", "true",
                                          ",",          "}",
                                          "\\",         "9007199254740992",
                                          "\xFF"};
  int64_t opened = 0;
  for (int run = 0; run < kRuns; ++run) {
    FuzzRandom random(static_cast<uint64_t>(2'000'000 + run));
    const std::string text = mutated(good, random, words);
    try {
      const Dataset dataset = parse_manifest(text, "manifest.json");
      ASSERT_EQ(parse_manifest(manifest_json(dataset), "again").rows, dataset.rows);
      ++opened;
    } catch (const Error&) {
    }
  }
  std::printf("%d runs: %lld opened\n", kRuns, static_cast<long long>(opened));
  EXPECT_GT(opened, 0);
  EXPECT_LT(opened, kRuns);
}

}  // namespace
}  // namespace troika
