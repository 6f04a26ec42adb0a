// `troika schedule` where the outside world is in the way: streams that are closed or full, devices and links
// as output, files that are no schedules; and times of zero.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>

#include "app/schedule_command.h"
#include "support/temporary_folder.h"
#include "troika/base/file.h"
#include "troika/schedule/catalogue.h"

namespace troika {
namespace {

constexpr int kClosed = -1;

// Exit status, or 128 + signal, of the command with two streams taken away: a file to write to, or kClosed.
int status_with(const Words& words, int out, int err) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (const auto& [file, stream] : {std::pair{out, STDOUT_FILENO}, {err, STDERR_FILENO}}) {
      if (file == kClosed) ::close(stream);
      if (file != kClosed) ::dup2(file, stream);
    }
    const std::string program = TROIKA_BINARY_DIR "/troika";
    std::vector<char*> argv{const_cast<char*>("troika"), const_cast<char*>("schedule")};
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(ScheduleStreams, ClosedOrFullOnesEndCleanly) {
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC),
            null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  const Words good{"simulate", "1f1b"}, wrong{"draw", "nothing"},
      bad{"simulate", "1f1b", "--memory-limit", "1"};
  for (const int lost : {full, kClosed}) {
    // What can't be said changes no exit status, what can't be written does.
    EXPECT_EQ(status_with(good, null, lost), 0);
    EXPECT_EQ(status_with(wrong, null, lost), 2);
    EXPECT_EQ(status_with({"draw", "1f1b", "--nothing"}, null, lost), 2);
    EXPECT_EQ(status_with(bad, null, lost), 1);
    EXPECT_EQ(status_with({"draw", "pipedream", "--format", "csv"}, null, lost), 0);  // with notes
    for (const Words& words : {good, Words{"list"}, Words{"draw", "gpipe", "--micro-batches", "500"},
                               Words{"compare", "--json"}, Words{"draw", "--help"}}) {
      EXPECT_EQ(status_with(words, lost, null), 1) << words[0];
      EXPECT_EQ(status_with(words, lost, lost), 1) << words[0];
    }
  }
  ::close(full);
  ::close(null);
}

TEST(ScheduleDraw, ADeviceOrALinkStaysWhatItIs) {
  const TemporaryFolder folder;
  const auto draw_to = [&](const std::string& name) {
    return schedule({"draw", "1f1b", "--format", "actions", "-o", name}, "", folder.path());
  };
  // Where the write ends is somebody else's: a pipe here.
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  const int reader = ::open((folder / "pipe").c_str(), O_RDONLY | O_NONBLOCK);
  EXPECT_EQ(draw_to("pipe").status, 0);
  char text[64] = {};
  EXPECT_GT(::read(reader, text, sizeof text - 1), 0);
  EXPECT_TRUE(std::string(text).starts_with("# kind=train")) << text;
  ::close(reader);
  EXPECT_TRUE(std::filesystem::is_fifo(folder / "pipe"));
  std::filesystem::create_directory(folder / "there");
  std::filesystem::create_symlink("there/file", folder / "link");
  EXPECT_EQ(draw_to("link").status, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_TRUE(read_text(folder / "there/file").starts_with("# kind=train"));
  EXPECT_EQ(draw_to("there").status, 1);
  const CommandResult missing = draw_to("no/such");
  EXPECT_TRUE(contains(missing.err, "can't create no/such: No such file")) << missing.err;
}

TEST(ScheduleCheck, WhatIsNoScheduleIsSaidInJsonToo) {
  for (const char* text : {"0F0 oops", "", "0F0,oops", "# edge=0>1\n0F0 0B0", "\xff\xfe\x00"}) {
    const Json json = json_of({"check", "-"}, 1, text);
    ASSERT_TRUE(json.is_object()) << text;
    EXPECT_EQ(json.at("valid"), false);
    EXPECT_EQ(json.at("errors").size(), 1u);
    EXPECT_EQ(json.at("errors").at(0).at("lane"), -1);
    EXPECT_TRUE(contains(json.at("errors").at(0).at("reason"), "standard input")) << json;
  }
  // What stands nowhere names no action.
  const Json nowhere = json_of({"check", "-"}, 1, "0F0 0B0\n2F0 2B0\n");
  EXPECT_EQ(nowhere.at("errors").at(0).at("action"), "");
  const Json missing = json_of({"check", "-"}, 1, "0F0 0B0\n1F0\n");
  EXPECT_EQ(missing.at("errors").at(0).at("action"), "1B0");
}

TEST(ScheduleCheck, NamesOfFilesMayBeAnything) {
  const TemporaryFolder folder;
  const std::string odd = "a\xff<&>\".txt";
  write_whole(folder / odd, "0F0 0B0\n");
  for (const Words& words : {Words{"check", odd, "--json"}, Words{"simulate", odd, "--json"},
                             Words{"draw", odd, "--format", "chrome"}}) {
    const CommandResult result = schedule(words, "", folder.path());
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_TRUE(Json::parse(result.out, nullptr, false).is_object()) << result.out;
  }
  const CommandResult svg = schedule({"draw", odd, "--format", "svg"}, "", folder.path());
  EXPECT_EQ(svg.status, 0);
  EXPECT_FALSE(contains(svg.out, "<&>")) << svg.out;
}

TEST(ScheduleSimulate, NotesStandInJson) {
  const Json json = json_of({"simulate", "-"}, 0, "0F0,0RESHARD,0B0\n");
  ASSERT_EQ(json.at("warnings").size(), 1u);
  EXPECT_TRUE(contains(json.at("warnings").at(0), "RESHARD")) << json;
  EXPECT_EQ(json_of({"draw", "-"}, 0, "0F0,0RESHARD,0B0\n").at("warnings"), json.at("warnings"));
  EXPECT_EQ(json_of({"simulate", "1f1b"}).at("warnings").size(), 0u);
}

TEST(ScheduleTimes, ZeroIsATime) {
  // (m + p - 1) times what is left of a pass.
  EXPECT_EQ(json_of({"simulate", "1f1b", "--weight", "0"}).at("makespan"), 11 * 2);
  EXPECT_EQ(json_of({"simulate", "1f1b", "--forward", "0"}).at("makespan"), 11 * 2);
  EXPECT_EQ(json_of({"simulate", "gpipe", "--backward", "0"}).at("makespan"), 11);
  EXPECT_EQ(json_of({"simulate", "naive", "--input", "0", "--weight", "0"}).at("makespan"), 8 * 4);
  // Without weight parts zb-h1 is 1f1b.
  EXPECT_EQ(json_of({"simulate", "zb-h1", "--weight", "0"}).at("makespan"), 11 * 2);
}

TEST(ScheduleTimes, ZerosGiveNumbersForEverySchedule) {
  const Words all{"--forward", "--input", "--weight"};
  for (const CatalogueEntry& entry : catalogue()) {
    for (size_t kept = 0; kept <= all.size(); ++kept) {  // all but one are zero, or all
      Words words{"simulate", std::string(entry.name), "--stages", "3", "--micro-batches", "4"};
      for (size_t i = 0; i < all.size(); ++i) {
        words.push_back(all[i]);
        words.emplace_back(i == kept ? "1" : "0");
      }
      const Json json = json_of(words);
      ASSERT_TRUE(json.is_object()) << entry.name;
      for (const char* key : {"makespan", "cost", "bubble_rate", "bubble_rate_makespan"}) {
        ASSERT_TRUE(json.at(key).is_number()) << entry.name << json;  // JSON says NaN as null
        EXPECT_GE(json.at(key), 0) << entry.name << json;
      }
      EXPECT_LE(json.at("bubble_rate"), 1) << entry.name;
      const int chunks = json.at("chunks"), micro_batches = json.at("micro_batches");
      if (kept < all.size()) {
        EXPECT_GE(json.at("makespan"), chunks * micro_batches) << entry.name;
      } else {
        EXPECT_EQ(json.at("makespan"), 0) << entry.name;
      }
    }
  }
}

TEST(ScheduleTimes, ZerosAreDrawnAndCompared) {
  const Words none{"--forward", "0", "--backward", "0"};
  for (const Words& words : {Words{"draw", "zb-v"}, Words{"draw", "1f1b", "--format", "svg"},
                             Words{"draw", "1f1b", "--format", "chrome"}, Words{"compare"},
                             Words{"compare", "--overlap", "--json"}, Words{"simulate", "1f1b"}}) {
    Words all = words;
    all.insert(all.end(), none.begin(), none.end());
    const CommandResult result = schedule(all);
    EXPECT_EQ(result.status, 0) << result.err;
    for (const char* word : {"nan", "inf ", "null,"}) {
      if (words[0] == "compare" && std::string(word) == "null,") continue;  // no memory limit
      EXPECT_FALSE(contains(result.out, word)) << result.out;
    }
  }
  EXPECT_EQ(json_of({"compare", "--weight", "0"}).at("schedules").size(), catalogue().size());
}

TEST(ScheduleCompare, UpdatesAreForThoseThatHaveThem) {
  const Json json = json_of({"compare", "--updates", "1000000"});
  EXPECT_FALSE(json.at("best").is_null()) << json;
  const CommandResult text = schedule({"compare", "--updates", "1000000"});
  EXPECT_TRUE(contains(text.out, "left out: pipedream-2bw")) << text.out;
}

}  // namespace
}  // namespace troika
