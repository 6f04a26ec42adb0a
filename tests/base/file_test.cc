#include "troika/base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "support/temporary_folder.h"
#include "troika/base/error.h"

namespace troika {
namespace {

size_t entries_in(const Path& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

TEST(File, WritesWholeOrNotAtAll) {
  const TemporaryFolder folder;
  write_whole(folder / "a", "one");
  write_whole(folder / "a", "two");
  EXPECT_EQ(read_text(folder / "a"), "two");
  EXPECT_EQ(entries_in(folder.path()), 1u);
}

// A limit on the file's size fails the write the way a full disk does, half-way.
TEST(File, FailedWriteKeepsTheOldFileAndLeavesNothing) {
  const TemporaryFolder folder;
  write_whole(folder / "a", "old");
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      write_whole(folder / "a", std::string(100000, 'x'));
    } catch (const Error& error) {
      _exit(std::string(error.what()).find("can't write") != std::string::npos ? 7 : 8);
    }
    _exit(9);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(read_text(folder / "a"), "old");
  EXPECT_EQ(entries_in(folder.path()), 1u);
}

TEST(File, LinksStayAndDevicesAreWrittenTo) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "there");
  std::filesystem::create_symlink("there/a", folder / "first");
  std::filesystem::create_symlink("first", folder / "second");
  for (const char* content : {"one", "two"}) {  // not there yet, and there
    write_whole(folder / "second", content);
    EXPECT_TRUE(std::filesystem::is_symlink(folder / "second"));
    EXPECT_TRUE(std::filesystem::is_symlink(folder / "first"));
    EXPECT_EQ(read_text(folder / "there/a"), content);
  }
  EXPECT_EQ(entries_in(folder / "there"), 1u);
  std::filesystem::create_symlink("circle", folder / "circle");
  EXPECT_THROW(write_whole(folder / "circle", "x"), Error);
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  const int reader = ::open((folder / "pipe").c_str(), O_RDONLY | O_NONBLOCK);
  std::filesystem::create_symlink("pipe", folder / "to_pipe");
  write_whole(folder / "to_pipe", "sent");
  char text[8] = {};
  EXPECT_EQ(::read(reader, text, sizeof text), 4);
  EXPECT_STREQ(text, "sent");
  ::close(reader);
  EXPECT_TRUE(std::filesystem::is_fifo(folder / "pipe"));
}

TEST(File, ErrorsNameThePathAndTheReason) {
  try {
    read_text("/nowhere/at/all");
    FAIL() << "read it";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "can't open /nowhere/at/all: No such file or directory");
  }
  try {
    write_whole("/nowhere/at/all", "x");
    FAIL() << "wrote it";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "can't create /nowhere/at/all: No such file or directory");
  }
  EXPECT_THROW(read_text("/"), Error);
  EXPECT_THROW(MappedFile("/nowhere/at/all"), Error);
}

TEST(File, ReadsExactlyOrSaysWhereItEnded) {
  const TemporaryFolder folder;
  write_whole(folder / "a", "0123456789");
  const FileHandle file = open_to_read(folder / "a");
  std::string four(4, '-');
  read_exactly(file, std::as_writable_bytes(std::span(four)), 6, folder / "a");
  EXPECT_EQ(four, "6789");
  EXPECT_THROW(read_exactly(file, std::as_writable_bytes(std::span(four)), 7, folder / "a"), Error);
}

TEST(File, MapsAlsoTheEmptyFile) {
  const TemporaryFolder folder;
  write_whole(folder / "empty", "");
  write_whole(folder / "a", "abc");
  EXPECT_EQ(MappedFile(folder / "empty").bytes().size(), 0u);
  MappedFile a(folder / "a");
  const MappedFile moved = std::move(a);
  EXPECT_EQ(static_cast<char>(moved.bytes()[2]), 'c');
}

// The folders above go too, but not one that somebody else has put something in.
TEST(FolderInProgress, TakesBackTheFoldersItMade) {
  const TemporaryFolder folder;
  { FolderInProgress building(folder / "a/b/made", false); }
  EXPECT_EQ(entries_in(folder.path()), 0u);
  {
    FolderInProgress building(folder / "a/b/made", false);
    write_whole(folder / "a/other", "x");
  }
  EXPECT_TRUE(std::filesystem::exists(folder / "a/other"));
  EXPECT_FALSE(std::filesystem::exists(folder / "a/b"));
}

TEST(FolderInProgress, VanishesUnlessCommitted) {
  const TemporaryFolder folder;
  {
    FolderInProgress building(folder / "made", false);
    write_whole(building.path() / "x", "x");
  }
  EXPECT_EQ(entries_in(folder.path()), 0u);
  {
    FolderInProgress building(folder / "made/", false);
    write_whole(building.path() / "x", "x");
    building.commit();
  }
  EXPECT_EQ(read_text(folder / "made" / "x"), "x");
  EXPECT_THROW(FolderInProgress(folder / "made", false), UsageError);
  {
    FolderInProgress building(folder / "made", true);
    write_whole(building.path() / "y", "y");
    building.commit();
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "made" / "x"));
  EXPECT_EQ(entries_in(folder.path()), 1u);
}

}  // namespace
}  // namespace troika
