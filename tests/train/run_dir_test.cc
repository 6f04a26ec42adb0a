#include "troika/train/run_dir.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "support/error_of.h"
#include "support/temporary_folder.h"
#include "troika/base/error.h"

namespace troika {
namespace {

namespace fs = std::filesystem;

void write_text(const Path& path, const std::string& text) { std::ofstream(path) << text; }

std::string contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos ? "" : "\"" + text + "\" lacks \"" + part + "\"";
}

TEST(RunDir, LeavesNothingUnlessKept) {
  const TemporaryFolder folder;
  {
    RunDir run(folder / "runs" / "a", RunDir::Mode::fresh);
    write_text(run.recipe(), "x");
    run.append("{}");
  }
  EXPECT_FALSE(fs::exists(folder / "runs"));
  {
    RunDir run(folder / "runs" / "a", RunDir::Mode::fresh);
    write_text(run.recipe(), "x");
    run.keep();
  }
  EXPECT_TRUE(fs::exists(folder / "runs" / "a" / "recipe.toml"));
  EXPECT_FALSE(fs::exists(folder / "runs" / "a" / "lock"));
}

TEST(RunDir, ARunIsNotReplacedByChance) {
  const TemporaryFolder folder;
  const Path path = folder / "a";
  { RunDir(path, RunDir::Mode::fresh).keep(); }
  EXPECT_EQ(contains(error_of([&] { RunDir(path, RunDir::Mode::fresh); }), "holds a run already"), "");
  { RunDir(path, RunDir::Mode::resume).keep(); }
  write_text(path / "last.safetensors", "x");
  { RunDir(path, RunDir::Mode::overwrite).keep(); }
  EXPECT_FALSE(fs::exists(path / "last.safetensors"));
}

TEST(RunDir, OverwriteSparesFoldersThatAreNoRuns) {
  const TemporaryFolder folder;
  write_text(folder / "thesis.tex", "x");
  EXPECT_EQ(contains(error_of([&] { RunDir(folder.path(), RunDir::Mode::overwrite); }), "holds thesis.tex"),
            "");
  EXPECT_TRUE(fs::exists(folder / "thesis.tex"));
  EXPECT_FALSE(fs::exists(folder / "lock"));
}

TEST(RunDir, NothingToResume) {
  const TemporaryFolder folder;
  EXPECT_EQ(contains(error_of([&] { RunDir(folder / "a", RunDir::Mode::resume); }), "nothing to resume"), "");
  EXPECT_FALSE(fs::exists(folder / "a"));
  fs::create_directory(folder / "b");
  EXPECT_EQ(contains(error_of([&] { RunDir(folder / "b", RunDir::Mode::resume); }), "nothing to resume"), "");
  write_text(folder / "b" / "lock", "1");  // killed before it wrote anything else
  { RunDir(folder / "b", RunDir::Mode::resume).keep(); }
  EXPECT_TRUE(fs::exists(folder / "b" / "run.jsonl"));
}

TEST(RunDir, TwoRunsInOneDirectory) {
  const TemporaryFolder folder;
  const Path path = folder / "a";
  const RunDir first(path, RunDir::Mode::fresh);
  for (const RunDir::Mode mode : {RunDir::Mode::fresh, RunDir::Mode::overwrite, RunDir::Mode::resume}) {
    EXPECT_EQ(contains(error_of([&] { RunDir(path, mode); }),
                       "another run (process " + std::to_string(::getpid()) + ") is using"),
              "");
  }
  EXPECT_TRUE(fs::exists(path / "lock"));  // the second one has not taken the first one's lock away
}

TEST(RunDir, AKilledRunsLockIsNoLock) {
  const TemporaryFolder folder;
  const Path path = folder / "a";
  const pid_t child = ::fork();
  if (child == 0) {
    RunDir run(path, RunDir::Mode::fresh);
    run.append("{\"step\":1}");
    ::_exit(0);  // without destructors, as after SIGKILL
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(fs::exists(path / "lock"));
  EXPECT_EQ(error_of([&] { RunDir(path, RunDir::Mode::resume); }), "no error");
}

TEST(RunDir, LogIsCutAtTheCheckpoint) {
  const TemporaryFolder folder;
  const Path path = folder / "a";
  {
    RunDir run(path, RunDir::Mode::fresh);
    for (const char* line :
         {"{\"step\":1}", "{\"step\":2}", "{\"step\":2,\"validation_loss\":1}", "{\"step\":3}"}) {
      run.append(line);
    }
    run.keep();
  }
  write_text(path / "run.jsonl", read_text(path / "run.jsonl") + "{\"ste");
  RunDir run(path, RunDir::Mode::resume);
  run.truncate_log(3);
  EXPECT_EQ(read_text(run.log()),
            "{\"step\":1}\n{\"step\":2}\n{\"step\":2,\"validation_loss\":1}\n{\"step\":3}\n");
  run.truncate_log(2);
  run.append("{\"step\":3,\"new\":1}");
  EXPECT_EQ(read_text(run.log()),
            "{\"step\":1}\n{\"step\":2}\n{\"step\":2,\"validation_loss\":1}\n{\"step\":3,\"new\":1}\n");
}

TEST(RunDir, PlacesThatCantBeWritten) {
  const TemporaryFolder folder;
  write_text(folder / "file", "x");
  EXPECT_EQ(contains(error_of([&] { RunDir(folder / "file", RunDir::Mode::fresh); }), "it is a file"), "");
  EXPECT_EQ(contains(error_of([&] { RunDir(folder / "file" / "a", RunDir::Mode::fresh); }), "--run-dir"), "");
  // Folders of the kernel refuse new entries to root as well, who may write to any ordinary one.
  EXPECT_EQ(contains(error_of([&] { RunDir("/proc/troika-run", RunDir::Mode::fresh); }), "--run-dir"), "");
}

TEST(RunDir, BestIsWhatLastWas) {
  const TemporaryFolder folder;
  RunDir run(folder / "a", RunDir::Mode::fresh);
  write_whole(run.last(), "one");
  run.mark_best();
  write_whole(run.last(), "two");
  EXPECT_EQ(read_text(run.best()), "one");
  run.mark_best();
  EXPECT_EQ(read_text(run.best()), "two");
  run.mark_best();  // as after a kill: it is the best already, two names of one file
  EXPECT_EQ(read_text(run.best()), "two");
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / "a")) {
    EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
  }
}

// A limit of no bytes a file stands for a full disk: names can be made, and nothing written.
TEST(RunDir, AFullDiskLeavesNoLock) {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_FSIZE, &none);
    const std::string said = error_of([&] { RunDir(folder / "runs" / "a", RunDir::Mode::fresh); });
    ::_exit(contains(said, "can't write").empty() && contains(said, "--run-dir").empty() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(fs::exists(folder / "runs"));
}

}  // namespace
}  // namespace troika
