// The command line as a user meets it; torch-free, so it holds for the lite build too.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace troika
