#include "troika/data/pack.h"

#include <archive.h>
#include <archive_entry.h>
#include <gtest/gtest.h>

#include "data/packing.h"
#include "troika/base/random.h"

namespace troika {
namespace {

using Rows = std::vector<std::string>;

TEST(Pack, TypesNullsAndValues) {
  const TemporaryFolder folder;
  const Dataset dataset = pack_text(folder,
                                    "i,f,b,c,t,w,void\n"
                                    "1,1.5,true,red,2013-01-01T10:00:00Z,16777217,\n"
                                    "NA,2,FALSE,\"blue, dark\",2013-01-02,-5,NA\n"
                                    "-3,?,,NA,,,\n"
                                    " 4 ,1e2,-,\"say \"\"hi\"\"\",-,9223372036854775807,\n")
                              .dataset;
  EXPECT_EQ(types_of(dataset), "int float bool category timestamp int64 float");
  EXPECT_EQ(rows_of(dataset),
            (Rows{"1|1.5|1|red|2013-01-01T10:00:00Z|16777217|null",
                  "null|2|0|blue, dark|2013-01-02T00:00:00Z|-5|null", "-3|null|null|NA|null|null|null",
                  "4|100|null|say \"hi\"|null|9223372036854775807|null"}));
  const Column& f = dataset.column("f");
  EXPECT_EQ(f.nulls, 1);
  EXPECT_DOUBLE_EQ(f.minimum, 1.5);
  EXPECT_DOUBLE_EQ(f.maximum, 100);
  EXPECT_DOUBLE_EQ(f.mean, 34.5);
  EXPECT_NEAR(f.deviation, 46.3159, 1e-4);
  EXPECT_EQ(dataset.column("void").nulls, 4);
  EXPECT_EQ(dataset.column("c").categories, (Rows{"red", "blue, dark", "NA", "say \"hi\""}));
}

TEST(Pack, DelimitersMarksAndLineEnds) {
  for (const std::string text : {"a;b\n1;2,5\n", "a\tb\n1\t2,5\n", "a|b\n1|2,5\n",
                                 "\xEF\xBB\xBF"
                                 "a;b\r\n1;2,5\r\n",
                                 "a;b\r1;2,5\r", "\n\na;b\n\n1;2,5"}) {
    const TemporaryFolder folder;
    const Dataset dataset = pack_text(folder, text).dataset;
    EXPECT_EQ(dataset.columns.at(0).name, "a") << text;
    EXPECT_EQ(rows_of(dataset), Rows{"1|2,5"}) << text;
  }
}

TEST(Pack, ASingleColumnKeepsItsEmptyRows) {
  const TemporaryFolder folder;
  EXPECT_EQ(rows_of(pack_text(folder, "a\n1\n\n3\n").dataset), (Rows{"1", "null", "3"}));
}

// A row between the samples, which are 1 MiB of the beginning and 15 times 64 KiB.
std::string late(const std::string& last, const std::string& usual = "7") {
  std::string text = "id,x\n";
  for (int i = 0; text.size() < (size_t{5} << 19); ++i) text += std::to_string(i) + "," + usual + "\n";
  return text.insert(text.find('\n', 1'630'000) + 1, last);
}

TEST(Pack, ALateContradictionWidensTheColumnAndLosesNothing) {
  struct Case {
    std::string cell, types;
    int passes;
  };
  for (const Case& one :
       {Case{"word", "int category", 2}, Case{"0.5", "int float", 1}, Case{"99999999999", "int int64", 2},
        Case{"true", "int category", 2}, Case{"2020-01-01", "int category", 2}}) {
    const TemporaryFolder folder;
    write_file(folder / "in.csv", late("555555," + one.cell + "\n"));
    Sniff sniff = sniff_csv(folder / "in.csv");
    ASSERT_EQ(shape_of(sniff.columns[1].kinds).type, ColumnType::integer) << "the sample must miss the cell";
    const PackReport report =
        pack(pack_options({folder / "in.csv"}, folder / "out"), sniff, [](const PackProgress&) {});
    EXPECT_EQ(report.passes, one.passes) << one.cell;
    EXPECT_EQ(types_of(report.dataset), one.types);
    const Rows rows = rows_of(report.dataset);
    EXPECT_EQ(std::ranges::count(rows, "555555|" + one.cell), 1) << one.cell;
    EXPECT_EQ(rows.size(), static_cast<size_t>(std::ranges::count(late(""), '\n')));
    if (one.cell == "word") {
      ASSERT_EQ(report.widened.size(), 1U);
      EXPECT_EQ(report.widened[0].text, "word");
      const std::string text = late("555555,word\n");
      EXPECT_EQ(report.widened[0].line,
                1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(text.find("word")), '\n'));
    }
  }
}

TEST(Pack, ASampleThatMisleadsChangesNothing) {
  const TemporaryFolder folder;
  std::string text = "a,b,c\n";
  for (int i = 0; i < 500; ++i) text += fmt::format("{},{},2013-01-0{}\n", i, i * 0.5, 1 + i % 9);
  write_file(folder / "in.csv", text);
  const Sniff honest = sniff_csv(folder / "in.csv");
  pack(pack_options({folder / "in.csv"}, folder / "honest"), honest, [](const PackProgress&) {});
  for (const CellKind kind :
       {CellKind::text, CellKind::boolean, CellKind::wide_integer, CellKind::timestamp}) {
    Sniff wrong = honest;
    for (SniffedColumn& column : wrong.columns) {
      column.kinds = {};
      column.kinds.add(kind);
    }
    PackOptions options = pack_options({folder / "in.csv"}, folder / "wrong");
    options.overwrite = true;
    EXPECT_EQ(pack(options, wrong, [](const PackProgress&) {}).passes, 2);
    for (const char* name : {"manifest.json", "x-000000.npy", "i-000000.npy"}) {
      EXPECT_EQ(file_text(folder / "wrong" / name), file_text(folder / "honest" / name));
    }
  }
}

TEST(Pack, RejectedRowsAreAllReportedAndTheRestIsLoaded) {
  const TemporaryFolder folder;
  std::string text = "a,b\n";
  int64_t records = 0, bad = 0;
  for (int i = 0; i < 5000; ++i, ++records) {
    const bool spoilt = i % 7 == 3;
    bad += spoilt ? 1 : 0;
    if (!spoilt)
      text += fmt::format("{},\"x\n{}\"\n", i, i % 10);
    else if (i % 4 == 0)
      text += "1\n";
    else if (i % 4 == 1)
      text += "1,2,3\n";
    else if (i % 4 == 2)
      text += "1,\"a\"b\n";
    else
      text += "1,\xFF\n";
  }
  write_file(folder / "in.csv", text);
  PackOptions options = pack_options({folder / "in.csv"}, folder / "out");
  options.limits.block_bytes = 777;
  const PackReport report = pack_with(options);
  EXPECT_EQ(report.dataset.rows, records - bad);
  EXPECT_EQ(report.dataset.rejected_rows, bad);
  const std::string rejects = file_text(folder / "out" / "rejects.csv");
  EXPECT_EQ(std::ranges::count(rejects, '\n'), bad + 1);
  // The first is record 3, after three of two lines each.
  EXPECT_EQ(rejects.substr(0, rejects.find('\n', 30)),
            fmt::format("file,line,byte,reason,text\n\"{}\",8,{},\"not UTF-8 text\",\"1,\\xFF\"",
                        (folder / "in.csv").string(), text.find("1,\xFF")));
  EXPECT_NE(rejects.find(",\"1 fields, expected 2\",\"1\"\n"), std::string::npos);
  EXPECT_NE(rejects.find(",\"a quote that is not closed at the end of its field\",\"1,\"\"a\"\"b\"\n"),
            std::string::npos);
  // The manifest counts them; the few for people are the first ones.
  ASSERT_EQ(report.first_rejects.size(), 5U);
  EXPECT_EQ(report.first_rejects[0].line, 8);
}

TEST(Pack, ARecordBeyondTheLimitIsRejectedAndTheNextOneIsRead) {
  const TemporaryFolder folder;
  write_file(folder / "in.csv", "a,b\n1,2\n3," + std::string(100'000, 'x') + "\n5,6\n7,\"open\n8,9\n" +
                                    std::string(3000, '\n') + "1,2\n");
  PackOptions options = pack_options({folder / "in.csv"}, folder / "out");
  options.limits = {.block_bytes = 64, .record_bytes = 2000};
  const PackReport report = pack_with(options);
  EXPECT_EQ(rows_of(report.dataset), (Rows{"1|2", "5|6", "8|9", "1|2"}));
  ASSERT_EQ(report.first_rejects.size(), 2U);
  EXPECT_EQ(report.first_rejects[0].line, 3);
  EXPECT_EQ(report.first_rejects[0].reason, "longer than 2.0 KB");
  EXPECT_EQ(report.first_rejects[1].line, 5);
  EXPECT_EQ(report.first_rejects[1].reason, "a quote that is not closed at the end of its field");
}

std::string mixed_csv(int rows) {
  std::string text = "id,number,word,when,big\n";
  for (int i = 0; i < rows; ++i) {
    const auto random = [&](uint64_t what) { return uniform(what, static_cast<uint64_t>(i)); };
    text += fmt::format("{},{},\"w{}{}\",2020-01-01T00:00:{:02},{}\n", i, random(1) * 100,
                        static_cast<int>(random(2) * random(2) * 3000), i % 50 == 0 ? "\n" : "", i % 60,
                        static_cast<int64_t>(random(3) * 1e15));
    if (i % 97 == 0) text += "only,three,fields\n";
  }
  return text;
}

TEST(Pack, AnyNumberOfThreadsGivesTheSameBytes) {
  const TemporaryFolder folder;
  write_file(folder / "in.csv", mixed_csv(6000));
  std::vector<std::string> first;
  for (const int threads : {1, 2, 5}) {
    PackOptions options = pack_options({folder / "in.csv"}, folder / ("out" + std::to_string(threads)));
    options.threads = threads;
    options.limits.block_bytes = 4000;
    options.shard_bytes = 50'000;
    pack_with(options);
    std::vector<std::string> files;
    std::vector<Path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(options.output))
      paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    for (const Path& path : paths) files.push_back(path.filename().string() + file_text(path));
    EXPECT_GT(files.size(), 8U);
    if (first.empty()) first = files;
    EXPECT_EQ(files, first) << threads;
  }
}

TEST(Pack, ShardsKeepTheOrderOfTheFile) {
  const TemporaryFolder folder;
  std::string text = "id\n";
  Rows expected;
  for (int i = 0; i < 1000; ++i) {
    text += std::to_string(i) + "\n";
    expected.push_back(std::to_string(i));
  }
  write_file(folder / "in.csv", text);
  PackOptions options = pack_options({folder / "in.csv"}, folder / "out");
  options.shard_bytes = 256;
  options.limits.block_bytes = 100;
  const Dataset dataset = pack_with(options).dataset;
  EXPECT_EQ(dataset.shards.size(), 16U);
  EXPECT_EQ(rows_of(dataset), expected);
}

TEST(Pack, SeveralFilesFollowEachOther) {
  const TemporaryFolder folder;
  write_file(folder / "1.csv", "a,b\n1,x\n2,y");
  write_file(folder / "2.csv",
             "\xEF\xBB\xBF"
             "a,b\n3,y\n4,z\nbad\n");
  const PackReport report = pack_with(pack_options({folder / "1.csv", folder / "2.csv"}, folder / "out"));
  EXPECT_EQ(rows_of(report.dataset), (Rows{"1|x", "2|y", "3|y", "4|z"}));
  EXPECT_EQ(report.first_rejects.at(0).file, (folder / "2.csv").string());
  EXPECT_EQ(report.first_rejects.at(0).line, 4);
  write_file(folder / "3.csv", "a,c\n3,y\n");
  const std::string error = error_of([&] {
    pack_with(pack_options({folder / "1.csv", folder / "3.csv"}, folder / "other"));
  });
  EXPECT_NE(error.find("column 2 is \"c\", expected \"b\""), std::string::npos) << error;
  EXPECT_FALSE(std::filesystem::exists(folder / "other"));
}

void write_archive(const Path& path, bool zip,
                   const std::vector<std::pair<std::string, std::string>>& members) {
  archive* const writer = archive_write_new();
  if (zip) {
    archive_write_set_format_zip(writer);
  } else {
    archive_write_add_filter_gzip(writer);
    archive_write_set_format_raw(writer);
  }
  ASSERT_EQ(archive_write_open_filename(writer, path.c_str()), ARCHIVE_OK);
  for (const auto& [name, text] : members) {
    archive_entry* const entry = archive_entry_new();
    archive_entry_set_pathname(entry, name.c_str());
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    archive_entry_set_size(entry, static_cast<int64_t>(text.size()));
    ASSERT_EQ(archive_write_header(writer, entry), ARCHIVE_OK);
    ASSERT_EQ(archive_write_data(writer, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    archive_entry_free(entry);
  }
  ASSERT_EQ(archive_write_free(writer), ARCHIVE_OK);
}

TEST(Pack, GzipAndZipGiveWhatThePlainFileGives) {
  const TemporaryFolder folder;
  const std::string text = mixed_csv(3000);
  write_file(folder / "in.csv", text);
  write_archive(folder / "in.csv.gz", false, {{"in.csv", text}});
  write_archive(folder / "in.zip", true, {{"readme.md", "not a table"}, {"data/in.csv", text}});
  const Dataset plain = pack_with(pack_options({folder / "in.csv"}, folder / "plain")).dataset;
  for (const char* name : {"in.csv.gz", "in.zip"}) {
    PackOptions options = pack_options({folder / name}, folder / "packed");
    options.overwrite = true;
    const Dataset packed = pack_with(options).dataset;
    EXPECT_EQ(packed.source_fingerprint, plain.source_fingerprint);
    for (const char* file : {"x-000000.npy", "i-000000.npy"}) {
      EXPECT_EQ(file_text(folder / "packed" / file), file_text(folder / "plain" / file)) << name;
    }
  }
  write_archive(folder / "two.zip", true, {{"1.csv", "a\n1\n"}, {"2.csv", "a\n2\n"}});
  EXPECT_NE(
      error_of([&] { sniff_csv(folder / "two.zip"); }).find("holds 2 CSV files (1.csv, 2.csv), expected one"),
      std::string::npos);
  const std::string gzip = file_text(folder / "in.csv.gz");
  write_file(folder / "cut.csv.gz", gzip.substr(0, gzip.size() / 2));
  const std::string error =
      error_of([&] { pack_with(pack_options({folder / "cut.csv.gz"}, folder / "cut")); });
  EXPECT_NE(error.find("was cut short"), std::string::npos) << error;
  EXPECT_FALSE(std::filesystem::exists(folder / "cut"));
}

TEST(Pack, NumbersThatFloat32CantHoldAreReported) {
  const TemporaryFolder folder;
  const PackReport report = pack_text(folder, "a,b,c\n1.5,inf,0.5\n1e39,2,16777217\n-1e400,-inf,1\n");
  EXPECT_EQ(rows_of(report.dataset), (Rows{"1.5|inf|0.5", "null|2|16777216", "null|-inf|1"}));
  ASSERT_EQ(report.losses.size(), 3U);
  EXPECT_EQ(report.losses[0].beyond_float, 2);
  EXPECT_EQ(report.losses[1].infinite, 2);
  EXPECT_TRUE(report.losses[2].rounded_integers);
  EXPECT_EQ(report.dataset.column("a").nulls, 2);
  EXPECT_EQ(report.dataset.column("b").maximum, 2);
}

TEST(Pack, ADictionaryBeyondItsLimitLeavesTheColumnOutByName) {
  const TemporaryFolder folder;
  std::string text = "id,unique,kind\n";
  for (int i = 0; i < 3000; ++i)
    text += fmt::format("{},text number {},{}\n", i, i, i % 2 == 0 ? "even" : "odd");
  write_file(folder / "in.csv", text);
  PackOptions options = pack_options({folder / "in.csv"}, folder / "out");
  options.dictionary_bytes = 50'000;
  const Dataset dataset = pack_with(options).dataset;
  EXPECT_EQ(dataset.left_out, Rows{"unique"});
  EXPECT_EQ(types_of(dataset), "int category");
  EXPECT_EQ(dataset.rows, 3000);
  EXPECT_EQ(rows_of(open_dataset(folder / "out")).back(), "2999|odd");
}

}  // namespace
}  // namespace troika
