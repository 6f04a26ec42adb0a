// What keeps a dataset from being made gets a message, and leaves nothing behind.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "data/packing.h"
#include "troika/base/interrupt.h"
#include "troika/base/memory.h"

namespace troika {
namespace {

TEST(PackFailure, FilesThatAreNoTable) {
  struct Case {
    std::string name, text, message;
  };
  for (const Case& one : {
           Case{"empty", "", "is empty"},
           Case{"blank", "\n\r\n\n", "only blank lines"},
           Case{"header_only", "a,b\n", "no rows"},
           Case{"twice", "a,b,a\n1,2,3\n", "\"a\" twice, as columns 1 and 3"},
           Case{"no_header", "1,2.5,x\n2,3.5,y\n", "no header"},
           Case{"all_bad", "a,b\n1\n2\n", "all 2 rows were rejected"},
           Case{"title", "My table\na,b\n1,2\n3,4\n", "title"},
           Case{"zeros", std::string(4096, '\0'), "isn't UTF-8 text"},
           Case{"utf16",
                "\xFF\xFE"
                "a\0,\0",
                "UTF-16"},
           Case{"png", "\x89PNG\r\n\x1A\n", "an image"},
           Case{"open_header", "\"a,b\n1,2\n", "header"},
           Case{"not_gzip", "\x1F\x8B nonsense", "unpack"},
           Case{"not_zip", "PK\x03\x04 nonsense", "unpack"},
       }) {
    const TemporaryFolder folder;
    const std::string error = error_of([&] { pack_text(folder, one.text); });
    EXPECT_NE(error.find(one.message), std::string::npos) << one.name << ": " << error;
    EXPECT_NE(error.find("in.csv"), std::string::npos) << error;
    expect_empty_but(folder, {"in.csv"});
  }
}

TEST(PackFailure, MissingFileFolderAndPipe) {
  const TemporaryFolder folder;
  EXPECT_NE(error_of([&] { sniff_csv(folder / "absent.csv"); }).find("absent.csv: No such file"),
            std::string::npos);
  EXPECT_NE(error_of([&] { sniff_csv(folder.path()); }).find("is a folder"), std::string::npos);
  EXPECT_NE(error_of([&] { sniff_csv("/dev/null"); }).find("no regular file"), std::string::npos);
}

TEST(PackFailure, AnOutputThatExistsIsKept) {
  const TemporaryFolder folder;
  pack_text(folder, "a,b\n1,2\n");
  EXPECT_NE(error_of([&] { pack_text(folder, "a,b\n3,4\n"); }).find("exists already"), std::string::npos);
  EXPECT_EQ(rows_of(open_dataset(folder / "out")), std::vector<std::string>{"1|2"});
  PackOptions options = pack_options({folder / "in.csv"}, folder / "out");
  options.overwrite = true;
  pack_with(options);
  EXPECT_EQ(rows_of(open_dataset(folder / "out")), std::vector<std::string>{"3|4"});
  // What is no dataset is never removed.
  std::filesystem::create_directory(folder / "photos");
  write_file(folder / "photos" / "one.jpg", "precious");
  options.output = folder / "photos";
  EXPECT_NE(error_of([&] { pack_with(options); }).find("is no dataset"), std::string::npos);
  EXPECT_EQ(file_text(folder / "photos" / "one.jpg"), "precious");
}

// Runs `work` in a child, so that its limits and signals are its own; its exit status.
template <typename Work>
int in_child(Work work) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      ::_exit(work());
    } catch (...) {
      ::_exit(255);
    }
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  return WEXITSTATUS(status);
}

std::string many_rows(int rows) {
  std::string text = "a,b\n";
  for (int i = 0; i < rows; ++i) text += fmt::format("{},{}.5\n", i, i);
  return text;
}

TEST(PackFailure, AFullDiskLeavesNothingBehind) {
  const TemporaryFolder folder;
  write_file(folder / "in.csv", many_rows(200'000));
  const int status = in_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{300'000, 300'000};  // no file may grow beyond it: write fails as on a full disk
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const std::string error = error_of([&] { pack_with(pack_options({folder / "in.csv"}, folder / "out")); });
    return error.find("can't write") != std::string::npos && error.find("File too large") != std::string::npos
               ? 7
               : 1;
  });
  EXPECT_EQ(status, 7);
  expect_empty_but(folder, {"in.csv"});
}

TEST(PackFailure, AFolderThatCantBeWritten) {
  const TemporaryFolder folder;
  write_file(folder / "in.csv", "a\n1\n");
  // Root may write everywhere, but not into a file or /proc.
  EXPECT_NE(error_of([&] { pack_with(pack_options({folder / "in.csv"}, "/proc/out")); }).find("/proc/out"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              pack_with(pack_options({folder / "in.csv"}, folder / "in.csv" / "out"));
            }).find("can't create"),
            std::string::npos);
  expect_empty_but(folder, {"in.csv"});
}

TEST(PackFailure, AnInterruptEndsCleanly) {
  const TemporaryFolder folder;
  write_file(folder / "in.csv", many_rows(1'000'000));
  PackOptions options = pack_options({folder / "in.csv"}, folder / "out");
  options.limits.block_bytes = 256;  // slow enough to be interrupted
  std::string error;
  {
    const InterruptGuard guard;
    std::raise(SIGINT);
    error = error_of([&] { pack_with(options); });
  }
  const InterruptGuard fresh;  // forgets the signal
  EXPECT_EQ(error, "interrupted; nothing was written");
  expect_empty_but(folder, {"in.csv"});
}

TEST(PackFailure, MemoryDoesntGrowWithTheFile) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr uint64_t kMost = uint64_t{1} << 40;  // a sanitizer's memory says nothing
#else
  constexpr uint64_t kMost = uint64_t{100} << 20;
#endif
  const TemporaryFolder folder;
  {
    const std::string part = many_rows(100'000).substr(4);
    std::ofstream file(folder / "in.csv", std::ios::binary);
    file << "a,b\n";
    for (int i = 0; i < 200; ++i) file << part;
  }
  EXPECT_GT(std::filesystem::file_size(folder / "in.csv"), uint64_t{250} << 20);
  const int megabytes = in_child([&] {
    PackOptions options = pack_options({folder / "in.csv"}, folder / "out");
    options.threads = 4;
    const PackReport report = pack_with(options);
    if (report.dataset.rows != 20'000'000) return 255;
    return static_cast<int>(std::min<uint64_t>(peak_rss_bytes() >> 20, 254));
  });
  RecordProperty("peak_megabytes", megabytes);
  EXPECT_LT(megabytes, 255);
  EXPECT_LE(static_cast<uint64_t>(megabytes), kMost >> 20);
}

}  // namespace
}  // namespace troika
