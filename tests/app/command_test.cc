// The command line as a user meets it; torch-free, so it holds for the lite build too.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "support/command.h"
#include "support/temporary_folder.h"

namespace troika {
namespace {

bool contains(const std::string& text, const std::string& word) {
  return text.find(word) != std::string::npos;
}

TEST(Command, EverySubcommandHasHelpWithAnExample) {
  for (const char* name : {"pack", "data", "train", "verify", "demo", "schedule"}) {
    const CommandResult result = run_troika({name, "--help"});
    EXPECT_EQ(result.status, 0) << name;
    EXPECT_TRUE(contains(result.out, "xample")) << result.out;
    EXPECT_EQ(result.err, "") << name;
  }
  const CommandResult all = run_troika({"--help"});
  EXPECT_EQ(all.status, 0);
  for (const char* name : {"pack", "data", "train", "verify", "schedule"})
    EXPECT_TRUE(contains(all.out, name)) << name;
}

TEST(Command, WithoutArgumentsItShowsHelpAndIsWrongUsage) {
  const CommandResult result = run_troika({});
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(contains(result.out, "SUBCOMMAND")) << result.out;
}

TEST(Command, WrongWordsAreNamedWithTheNearest) {
  struct Case {
    std::vector<std::string> arguments;
    const char* says;
  };
  const Case cases[] = {
      {{"trian", "x.toml"}, "\"train\""},
      {{"train", "x.toml", "--rank", "2"}, "\"--ranks\""},
      {{"verify", "x.toml", "--step=2"}, "\"--steps\""},
      {{"train"}, "recipe"},
      {{"train", "x.toml", "--ranks", "many"}, "many"},
      {{"train", "x.toml", "--ranks", "0"}, "--ranks"},
      {{"train", "x.toml", "--weights", "own"}, "--weights"},
      {{"train", "x.toml", "--deadline", "0"}, "--deadline"},
      {{"train", "x.toml", "--deadline", "nan"}, "--deadline"},
      {{"pack"}, "required"},
      {{"data"}, "ubcommand"},
      {{"data", "hed", "x"}, "\"head\""},
  };
  for (const Case& c : cases) {
    const CommandResult result = run_troika(c.arguments);
    EXPECT_EQ(result.status, 2) << c.says;
    EXPECT_TRUE(contains(result.err, c.says)) << result.err;
    EXPECT_EQ(result.out, "") << c.says;
  }
}

TEST(Command, MissingFilesAreErrorsNotCrashes) {
  const TemporaryFolder folder;
  const CommandResult pack = run_troika({"pack", "nothing.csv", "-o", "made"}, folder.path());
  EXPECT_EQ(pack.status, 1) << pack.err;
  EXPECT_TRUE(contains(pack.err, "nothing.csv")) << pack.err;
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  const CommandResult info = run_troika({"data", "info", "nothing"}, folder.path());
  EXPECT_EQ(info.status, 1) << info.err;
  EXPECT_TRUE(contains(info.err, "nothing")) << info.err;
}

TEST(Command, PackLikeSaysWhatDiffers) {
  const TemporaryFolder folder;
  std::ofstream(folder / "old.csv") << "size,kind,weight\n1,a,2.5\n2,b,3.5\n";
  std::ofstream(folder / "new.csv") << "sice,extra,kind\n7,1,b\n8,2,c\n9,3,c\n";
  ASSERT_EQ(run_troika({"pack", "old.csv", "-o", "old", "--quiet"}, folder.path()).status, 0);
  const CommandResult made =
      run_troika({"pack", "new.csv", "-o", "new", "--like", "old", "--json"}, folder.path());
  ASSERT_EQ(made.status, 0) << made.err;
  for (const char* line :
       {"columns, types and categories are those of old",
        "null in all rows, as the CSV doesn't have it: \"size\" (did you mean \"sice\"?), \"weight\"\n",
        "left out, as old doesn't have it: \"sice\", \"extra\"\n",
        "column \"kind\": 2 cells became null, as old doesn't know their category; the first: c"}) {
    EXPECT_TRUE(contains(made.err, line)) << line << "\n" << made.err;
  }
  const auto json = nlohmann::json::parse(made.out);
  EXPECT_EQ(json["unseen"], nlohmann::json({{"kind", 2}}));
  EXPECT_EQ(json["absent"], nlohmann::json({"size", "weight"}));
  EXPECT_EQ(json["left_out"], nlohmann::json({"sice", "extra"}));
  EXPECT_EQ(json["columns"][1]["nulls"], 2);
  const CommandResult head = run_troika({"data", "head", "new", "--csv"}, folder.path());
  EXPECT_EQ(head.out, "size,kind,weight\n,b,\n,,\n,,\n");
}

TEST(Command, PackLikeNeedsADatasetAndItsOwnOutput) {
  const TemporaryFolder folder;
  std::ofstream(folder / "in.csv") << "a,b\n1,2\n";
  const CommandResult no_dataset = run_troika({"pack", "in.csv", "-o", "new", "--like", "."}, folder.path());
  EXPECT_EQ(no_dataset.status, 1);
  EXPECT_TRUE(contains(no_dataset.err, "is no dataset")) << no_dataset.err;
  EXPECT_FALSE(std::filesystem::exists(folder / "new"));
  ASSERT_EQ(run_troika({"pack", "in.csv", "-o", "old", "--quiet"}, folder.path()).status, 0);
  const CommandResult itself =
      run_troika({"pack", "in.csv", "-o", "old", "--like", "old", "--overwrite"}, folder.path());
  EXPECT_EQ(itself.status, 2);
  EXPECT_TRUE(contains(itself.err, "would remove it")) << itself.err;
  EXPECT_EQ(run_troika({"data", "check", "old"}, folder.path()).status, 0);
  EXPECT_EQ(run_troika({"pack", "in.csv", "--sniff", "--like", "old"}, folder.path()).status, 2);
  const CommandResult empty = run_troika({"pack", "in.csv", "-o", "new", "--like", ""}, folder.path());
  EXPECT_EQ(empty.status, 2);
  EXPECT_TRUE(contains(empty.err, "--like")) << empty.err;
}

TEST(Command, PackTakesFilesAsTextAndNamesOptionsOfTables) {
  const TemporaryFolder folder;
  std::ofstream(folder / "in.txt") << "no header, \"no quotes\n";
  const CommandResult pack = run_troika({"pack", "--text", "in.txt", "-o", "text", "--json"}, folder.path());
  ASSERT_EQ(pack.status, 0) << pack.err;
  EXPECT_EQ(nlohmann::json::parse(pack.out)["rows"], 22);
  EXPECT_TRUE(contains(run_troika({"data", "info", "text"}, folder.path()).out, "256 categories"));
  EXPECT_TRUE(contains(run_troika({"data", "check", "text"}, folder.path()).out, "good; 22 rows"));
  EXPECT_EQ(run_troika({"data", "head", "text", "--csv", "--rows", "2"}, folder.path()).out, "byte\nn\no\n");
  for (const std::vector<std::string>& option :
       std::vector<std::vector<std::string>>{{"--sniff"}, {"--like", "text"}, {"--threads", "2"}}) {
    std::vector<std::string> words{"pack", "--text", "in.txt", "-o", "new"};
    words.insert(words.end(), option.begin(), option.end());
    const CommandResult refused = run_troika(words, folder.path());
    EXPECT_EQ(refused.status, 2) << option[0];
    EXPECT_TRUE(contains(refused.err, option[0] + " is for tables")) << refused.err;
  }
  EXPECT_EQ(run_troika({"pack", "--text", "in.txt", "-o", "text"}, folder.path()).status, 2);
}

}  // namespace
}  // namespace troika
