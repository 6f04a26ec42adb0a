// New rows with the columns, types and categories of a dataset that is there.
#include <gtest/gtest.h>

#include "data/packing.h"
#include "troika/data/manifest.h"

namespace troika {
namespace {

using Rows = std::vector<std::string>;

// Every type; "big" is int64, "void" has no value.
constexpr const char* kOld =
    "id,x,ok,color,when,big,void,\"say \"\"y\"\"\"\n"
    "1,1.5,true,red,2013-01-01,99999999999,,0.25\n"
    "2,2,false,\"blue, dark\",2013-01-02,5,,0.5\n"
    "3,NA,,\"a \"\"b\"\"\",,,,1\n"
    "4,1e2,true,red,2013-01-04,-1,,\n";

class PackLike : public testing::Test {
 protected:
  void SetUp() override {
    write_file(folder_ / "old.csv", kOld);
    old_ = pack_with(pack_options({folder_ / "old.csv"}, folder_ / "old")).dataset;
  }
  PackReport pack_new(std::string_view text, int threads = 2, size_t block_bytes = size_t{1} << 20) {
    write_file(folder_ / "new.csv", text);
    PackOptions options = pack_options({folder_ / "new.csv"}, folder_ / "new");
    options.like = old_;
    options.overwrite = true;
    options.threads = threads;
    options.limits.block_bytes = block_bytes;
    return pack_with(options);
  }
  TemporaryFolder folder_;
  Dataset old_;
};

Rows reasons_of(const PackReport& report) {
  Rows reasons;
  for (const RejectedRow& row : report.first_rejects)
    reasons.push_back(fmt::format("{}: {}", row.line, row.reason));
  return reasons;
}

TEST_F(PackLike, ItselfIsTheSameBitForBit) {
  PackOptions options = pack_options({folder_ / "old.csv"}, folder_ / "new");
  options.like = old_;
  const PackReport report = pack_with(options);
  EXPECT_EQ(report.passes, 1);
  EXPECT_TRUE(report.absent.empty() && report.unseen.empty() && report.dataset.left_out.empty());
  for (const char* name : {"x-000000.npy", "i-000000.npy", kManifestName})
    EXPECT_EQ(file_text(folder_ / "new" / name), file_text(folder_ / "old" / name)) << name;
  check_dataset(open_dataset(folder_ / "new"));
}

TEST_F(PackLike, ColumnsAreFoundByNameAndExtraOnesAreLeftOut) {
  const PackReport report = pack_new(
      "big;extra;color;ok;\"say \"\"y\"\"\";x;id;void;when;more\n"
      "7;words;\"a \"\"b\"\"\";false;9;0.5;11;3;2020-02-29;1\n"
      ";;red;;;;;;;\n");
  const Dataset& dataset = report.dataset;
  EXPECT_EQ(types_of(dataset), types_of(old_));
  ASSERT_EQ(dataset.columns.size(), old_.columns.size());
  for (size_t i = 0; i < old_.columns.size(); ++i) {
    EXPECT_EQ(dataset.columns[i].name, old_.columns[i].name);
    EXPECT_EQ(dataset.columns[i].index, old_.columns[i].index);
    EXPECT_EQ(dataset.columns[i].storage, old_.columns[i].storage);
    EXPECT_EQ(dataset.columns[i].categories, old_.columns[i].categories);
  }
  EXPECT_EQ(rows_of(open_dataset(folder_ / "new")),
            (Rows{"11|0.5|0|a \"b\"|2020-02-29T00:00:00Z|7|3|9", "null|null|null|red|null|null|null|null"}));
  EXPECT_EQ(dataset.left_out, (Rows{"extra", "more"}));
  EXPECT_TRUE(report.absent.empty());
  // Statistics are of these rows: codes 2 and 0.
  EXPECT_EQ(dataset.column("color").minimum, 0);
  EXPECT_EQ(dataset.column("color").maximum, 2);
  EXPECT_EQ(dataset.column("big").maximum, 7);
  EXPECT_EQ(dataset.column("x").mean, 0.5);
  EXPECT_EQ(dataset.column("x").nulls, 1);
}

TEST_F(PackLike, AnAbsentColumnIsNullAndSaid) {
  const PackReport report = pack_new("x,color\n3,\"blue, dark\"\n4,\"blue, dark\"\n");
  EXPECT_EQ(report.absent, (Rows{"id", "ok", "when", "big", "void", "say \"y\""}));
  EXPECT_EQ(rows_of(open_dataset(folder_ / "new")), (Rows{"null|3|null|blue, dark|null|null|null|null",
                                                          "null|4|null|blue, dark|null|null|null|null"}));
  for (const std::string& name : report.absent) EXPECT_EQ(report.dataset.column(name).nulls, 2) << name;
  EXPECT_EQ(report.dataset.column("color").minimum, 1);
  EXPECT_EQ(report.dataset.column("color").maximum, 1);
  check_dataset(open_dataset(folder_ / "new"));
}

TEST_F(PackLike, AnAbsentCategoryKeepsItsTexts) {
  const PackReport report = pack_new("id\n5\n");
  EXPECT_EQ(report.dataset.column("color").categories, old_.column("color").categories);
  EXPECT_EQ(report.dataset.column("color").nulls, 1);
  EXPECT_EQ(rows_of(open_dataset(folder_ / "new")), Rows{"5|null|null|null|null|null|null|null"});
}

TEST_F(PackLike, NoColumnOrNoRowIsAnError) {
  const std::string none = error_of([&] { pack_new("a,b\n1,2\n"); });
  EXPECT_NE(none.find("new.csv has none of the columns of "), std::string::npos) << none;
  EXPECT_NE(none.find("(id, x, ok, color, when, big, void, say \"y\"); it has a, b"), std::string::npos)
      << none;
  EXPECT_NE(error_of([&] { pack_new(""); }).find("is empty"), std::string::npos);
  EXPECT_NE(error_of([&] { pack_new("id,x\n"); }).find("no rows"), std::string::npos);
  const std::string all = error_of([&] { pack_new("id,x\n1,many\n2,few\n"); });
  EXPECT_NE(all.find("all 2 rows were rejected"), std::string::npos) << all;
  EXPECT_NE(all.find("line 2: \"many\" in column \"x\""), std::string::npos) << all;
  expect_empty_but(folder_, {"new.csv", "old", "old.csv"});
}

TEST_F(PackLike, CategoriesThatAreNewAreNullAndCounted) {
  const PackReport report =
      pack_new("color,id\ngreen,1\nred,2\nNA,3\n,4\ngreen,5\n\"Red\",6\nred,7\ngreen,many\n");
  ASSERT_EQ(report.unseen.size(), 1U);
  EXPECT_EQ(report.unseen[0].name, "color");
  EXPECT_EQ(report.unseen[0].cells, 4) << "the rejected row counts in nothing";
  EXPECT_EQ(report.unseen[0].first, "green");
  const Column& color = report.dataset.column("color");
  EXPECT_EQ(color.nulls, 5);
  EXPECT_EQ(color.categories, old_.column("color").categories);
  Rows colors;
  for (const std::string& row : rows_of(open_dataset(folder_ / "new"))) {
    std::string rest = row.substr(row.find("null|null|") + 10);
    colors.push_back(rest.substr(0, rest.find('|')));
  }
  EXPECT_EQ(colors, (Rows{"null", "red", "null", "null", "null", "null", "red"}));
}

TEST_F(PackLike, WhatDoesntFitTheTypeIsARejectedRow) {
  struct Case {
    std::string column, good, bad, type;
  };
  for (const Case& one :
       {Case{"id", "-3", "3.5", "int"}, Case{"id", "16777216", "16777217", "int up to 16,777,216"},
        Case{"id", " 7 ", "inf", "int"}, Case{"big", "16777217", "0.5", "int"},
        Case{"x", "NaN", "2013-01-01", "float"}, Case{"void", "0.5", "word", "float"},
        Case{"ok", "TRUE", "1", "bool"}, Case{"when", "2013/1/2", "17", "timestamp"}}) {
    const PackReport report = pack_new(one.column + ",color\n" + one.good + ",red\n" + one.bad +
                                       ",\"a \"\"b\"\"\"\n" + one.good + ",red\n");
    EXPECT_EQ(types_of(report.dataset), types_of(old_));
    EXPECT_EQ(report.dataset.rows, 2) << one.bad;
    EXPECT_EQ(report.dataset.rejected_rows, 1) << one.bad;
    EXPECT_EQ(reasons_of(report), Rows{fmt::format("3: \"{}\" in column \"{}\", which --like keeps as {}",
                                                   one.bad, one.column, one.type)});
    EXPECT_EQ(report.first_rejects.at(0).text, one.bad + ",\"a \"\"b\"\"\"") << "as it was in the file";
    const Column& color = report.dataset.column("color");
    EXPECT_EQ(color.maximum, 0) << "a rejected row counts in no statistics";
    EXPECT_TRUE(report.widened.empty());
  }
}

TEST_F(PackLike, WholeNumbersRoundedInAFloatColumnAreReported) {
  const PackReport report = pack_new("x\n16777217\n3\n");
  ASSERT_EQ(report.losses.size(), 1U);
  EXPECT_TRUE(report.losses[0].rounded_integers);
  EXPECT_EQ(rows_of(report.dataset)[0], "null|16777216|null|null|null|null|null|null");
  EXPECT_EQ(report.dataset.column("x").type, ColumnType::number);
}

TEST_F(PackLike, AnyNumberOfThreadsAndRejectsBetweenGiveTheSame) {
  std::string text = "color,when,x,id\n";
  Rows rejected;
  for (int i = 0; i < 3000; ++i) {
    const bool odd = i % 7 == 3, short_row = i % 311 == 5;
    if (odd || short_row) rejected.push_back(std::to_string(i + 2));
    if (short_row) {
      text += "red\n";
    } else {
      text += fmt::format("{},2020-01-{:02},{},{}\n",
                          i % 5 == 0   ? "new"
                          : i % 3 == 0 ? "\"a \"\"b\"\"\""
                                       : "red",
                          i % 28 + 1, i * 0.5, odd ? "odd" : std::to_string(i));
    }
  }
  const PackReport one = pack_new(text, 1, 4096);
  const std::string manifest = file_text(folder_ / "new" / kManifestName);
  const std::string shard = file_text(folder_ / "new/x-000000.npy");
  const std::string rejects = file_text(folder_ / "new/rejects.csv");
  EXPECT_EQ(one.dataset.rows + one.dataset.rejected_rows, 3000);
  Rows lines;
  for (size_t at = rejects.find('\n'); at + 1 < rejects.size(); at = rejects.find('\n', at + 1)) {
    const size_t from = rejects.find("\",", at) + 2;
    lines.push_back(rejects.substr(from, rejects.find(',', from) - from));
  }
  EXPECT_EQ(lines, rejected) << "in the order of the file";
  const PackReport four = pack_new(text, 4, 4096);
  EXPECT_EQ(file_text(folder_ / "new" / kManifestName), manifest);
  EXPECT_EQ(file_text(folder_ / "new/x-000000.npy"), shard);
  EXPECT_EQ(file_text(folder_ / "new/rejects.csv"), rejects);
  EXPECT_EQ(four.unseen.at(0).cells, one.unseen.at(0).cells);
  const Rows rows = rows_of(four.dataset);
  int64_t row = 0;
  for (int i = 0; i < 3000; ++i) {
    if (i % 7 == 3 || i % 311 == 5) continue;
    const std::string beginning = fmt::format("{}|{}|null|{}|2020-01-{:02}T", i, i * 0.5,
                                              i % 5 == 0   ? "null"
                                              : i % 3 == 0 ? "a \"b\""
                                                           : "red",
                                              i % 28 + 1);
    ASSERT_TRUE(rows.at(static_cast<size_t>(row)).starts_with(beginning))
        << rows.at(static_cast<size_t>(row));
    ++row;
  }
}

TEST_F(PackLike, ItsCategoriesAreNotLimitedOnceMore) {
  write_file(folder_ / "new.csv", "color\nred\n");
  PackOptions options = pack_options({folder_ / "new.csv"}, folder_ / "new");
  options.like = old_;
  options.dictionary_bytes = options.all_dictionaries_bytes = 1;
  EXPECT_TRUE(pack_with(options).dataset.left_out.empty());
}

TEST_F(PackLike, TheOtherDatasetIsNeverReplaced) {
  write_file(folder_ / "new.csv", kOld);
  const std::string before = file_text(folder_ / "old" / kManifestName);
  std::filesystem::create_directory_symlink(folder_ / "old", folder_ / "link");
  PackOptions options = pack_options({folder_ / "new.csv"}, folder_ / "old");
  options.like = old_;
  EXPECT_NE(error_of([&] { pack_with(options); }).find("exists already"), std::string::npos);
  options.overwrite = true;
  for (const Path& output : {folder_ / "old", folder_ / "old/", folder_ / "link"}) {
    options.output = output;
    const std::string error = error_of([&] { pack_with(options); });
    EXPECT_NE(error.find("--overwrite would remove it"), std::string::npos) << output << ": " << error;
  }
  EXPECT_EQ(file_text(folder_ / "old" / kManifestName), before);
}

TEST_F(PackLike, ACategoryThatIsThereTwiceIsADamagedManifest) {
  for (Column& column : old_.columns) {
    if (column.name == "color") column.categories[2] = "red";
  }
  const std::string error = error_of([&] { pack_new("color\nred\n"); });
  EXPECT_NE(error.find("\"red\" of column \"color\" is there twice"), std::string::npos) << error;
  expect_empty_but(folder_, {"new.csv", "old", "old.csv"});
}

}  // namespace
}  // namespace troika
