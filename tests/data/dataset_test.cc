#include "troika/data/dataset.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "data/packing.h"
#include "troika/data/manifest.h"

namespace troika {
namespace {

class DatasetFolder : public testing::Test {
 protected:
  void SetUp() override {
    std::string text = "id,word,when\n";
    for (int i = 0; i < 900; ++i) text += fmt::format("{},w{},2020-01-{:02}\n", i, i % 5, 1 + i % 28);
    write_file(folder_ / "in.csv", text);
    PackOptions options = pack_options({folder_ / "in.csv"}, folder_ / "out");
    options.shard_bytes = 8000;
    options.checksum_block_bytes = 1024;
    pack_with(options);
  }
  std::string manifest() const { return file_text(out() / kManifestName); }
  void replace_manifest(const std::string& text) const { write_file(out() / kManifestName, text); }
  // The manifest with one field changed.
  void set(const std::string& pointer, const nlohmann::json& value) const {
    nlohmann::json json = nlohmann::json::parse(original_.empty() ? manifest() : original_);
    json[nlohmann::json::json_pointer(pointer)] = value;
    replace_manifest(json.dump());
  }
  std::string open_error() const {
    return error_of([&] { open_dataset(out()); });
  }
  Path out() const { return folder_ / "out"; }
  TemporaryFolder folder_;
  std::string original_;
};

TEST_F(DatasetFolder, TheManifestComesBackAsItWas) {
  const Dataset dataset = open_dataset(out());
  EXPECT_EQ(dataset.rows, 900);
  EXPECT_EQ(dataset.shards.size(), 2U);
  EXPECT_EQ(manifest_json(dataset), manifest());
  EXPECT_NE(dataset.fingerprint, 0U);
  check_dataset(dataset);
}

TEST_F(DatasetFolder, OddNamesAndTextsComeBack) {
  const std::string text = "\"a \"\"b\"\"\",\"c\nd\",\xC3\xA9\n1,\"\t\\ /\x01\",\xF0\x9F\x98\x80\n2,\"\",x\n";
  const TemporaryFolder folder;
  const Dataset packed = pack_text(folder, text).dataset;
  const Dataset dataset = open_dataset(folder / "out");
  EXPECT_EQ(dataset.columns[0].name, "a \"b\"");
  EXPECT_EQ(dataset.columns[1].name, "c\nd");
  EXPECT_EQ(dataset.columns[1].categories, std::vector<std::string>{"\t\\ /\x01"});
  EXPECT_EQ(dataset.columns[2].categories[0], "\xF0\x9F\x98\x80");
  EXPECT_EQ(manifest_json(packed), manifest_json(dataset));
}

TEST_F(DatasetFolder, AMissingColumnNamesTheNearest) {
  const Dataset dataset = open_dataset(out());
  EXPECT_EQ(dataset.column("word").categories.size(), 5U);
  const std::string error = error_of([&] { dataset.column("wrod"); });
  EXPECT_NE(error.find("no column \"wrod\" (did you mean \"word\"?); it has id, word, when"),
            std::string::npos)
      << error;
}

TEST_F(DatasetFolder, AFlippedBitIsFoundAndPlaced) {
  const Path file = out() / "x-000001.npy";
  std::string bytes = file_text(file);
  bytes[2500] = static_cast<char>(bytes[2500] ^ 4);
  write_file(file, bytes);
  const Dataset dataset = open_dataset(out());
  const std::string error = error_of([&] { check_dataset(dataset); });
  EXPECT_NE(error.find("x-000001.npy block 2 (bytes 2048 to "), std::string::npos) << error;
}

TEST_F(DatasetFolder, DamagedFilesAreNamed) {
  const std::string bytes = file_text(out() / "i-000000.npy");
  write_file(out() / "i-000000.npy", bytes.substr(0, bytes.size() - 1));
  EXPECT_NE(open_error().find("i-000000.npy has " + std::to_string(bytes.size() - 1) + " bytes, expected " +
                              std::to_string(bytes.size())),
            std::string::npos);
  std::string other = bytes;
  other[60] = '7';
  write_file(out() / "i-000000.npy", other);
  EXPECT_NE(open_error().find("i-000000.npy has another .npy header"), std::string::npos);
  std::filesystem::remove(out() / "i-000000.npy");
  EXPECT_NE(open_error().find("i-000000.npy: No such file"), std::string::npos);
  std::filesystem::remove(out() / "manifest.json");
  EXPECT_NE(open_error().find("is no dataset"), std::string::npos);
  EXPECT_NE(error_of([&] { open_dataset(folder_ / "absent"); }).find("there is no dataset"),
            std::string::npos);
}

TEST_F(DatasetFolder, ADamagedManifestNamesTheField) {
  original_ = manifest();
  replace_manifest(original_.substr(0, original_.size() / 2));
  EXPECT_NE(open_error().find("is no valid JSON"), std::string::npos);
  replace_manifest("[]");
  EXPECT_NE(open_error().find("the whole is [], expected an object"), std::string::npos);
  struct Case {
    std::string pointer;
    nlohmann::json value;
    std::string message;
  };
  for (const Case& one : {
           Case{"/format", 2, "dataset format 2, expected 1"},
           Case{"/rows", -1, "rows is -1"},
           Case{"/rows", "many", "rows is \"many\""},
           Case{"/rows", 901, "hold 900 rows, expected 901"},
           Case{"/rows", 1e300, "rows is 1e+300"},
           Case{"/rows", uint64_t{1} << 63, "rows is 9223372036854775808"},
           Case{"/columns/1/type", "word", "columns[1].type is \"word\""},
           Case{"/columns/1/index", 2, "columns[1].index is 2"},
           Case{"/columns/1/index", 0, "two columns lie in one place"},
           Case{"/columns/1/name", "id", "\"id\" is there twice"},
           Case{"/columns/1/categories/2", 5, "columns[1].categories[2] is 5"},
           Case{"/float_columns", 3, "there are 3 columns, expected 4"},
           Case{"/shards/0/floats", "../x-000000.npy", "shards[0].floats is \"../x-000000.npy\""},
           Case{"/shards/0/floats", "", "shards[0].floats is \"\""},
           Case{"/shards/0/rows", 499, "shards[0].floats_bytes"},
           Case{"/shards/1/floats_checksums", nlohmann::json::array(), "shards[1].floats_checksums"},
           Case{"/shards/1/floats_checksums/0", "xyz", "shards[1].floats_checksums[0]"},
           Case{"/source", 5, "source is 5"},
           Case{"/checksum_block_bytes", 0, "checksum_block_bytes is 0"},
       }) {
    set(one.pointer, one.value);
    EXPECT_NE(open_error().find(one.message), std::string::npos) << one.pointer << ": " << open_error();
    EXPECT_NE(open_error().find("manifest.json"), std::string::npos);
  }
  nlohmann::json json = nlohmann::json::parse(original_);
  json["shards"][0].erase("rows");
  replace_manifest(json.dump());
  EXPECT_NE(open_error().find("shards[0].rows is missing"), std::string::npos);
}

}  // namespace
}  // namespace troika
