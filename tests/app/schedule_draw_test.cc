// `troika schedule` draw and simulate, as a user runs them.
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>

#include "app/schedule_command.h"
#include "support/temporary_folder.h"
#include "troika/base/file.h"
#include "troika/schedule/catalogue.h"
#include "troika/schedule/schedule_text.h"
#include "troika/schedule/torch_csv.h"

namespace troika {
namespace {

double four_decimals(double value) { return std::round(value * 1e4) / 1e4; }

TEST(ScheduleDraw, OneForwardOneBackwardIsOnScreenWithItsNumbers) {
  const CommandResult result = schedule(
      {"draw", "1f1b", "--stages", "4", "--micro-batches", "8", "--forward", "1", "--backward", "2"});
  EXPECT_EQ(result.status, 0) << result.err;
  for (const char* words : {"makespan 33, bubble 27.3 %", "4 lanes, 8 micro-batches; forward 1, backward 2",
                            "peak held 4 micro-batches", "48 messages", "lane 3"}) {
    EXPECT_TRUE(contains(result.out, words)) << words << "\n" << result.out;
  }
  EXPECT_FALSE(contains(result.out, "\x1b")) << result.out;  // it is no terminal
}

TEST(ScheduleDraw, ZeroBubbleOfTheSameWorkIsShorter) {
  const CommandResult result = schedule({"draw", "zb-h1", "--stages", "4", "--micro-batches", "8",
                                         "--forward", "1", "--input", "1", "--weight", "1"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(contains(result.out, "cost 27, bubble 11.1 %")) << result.out;
}

TEST(ScheduleDraw, CostAndMakespanAreToldApart) {
  const CommandResult result = schedule({"draw", "zb-h2", "--stages", "4", "--micro-batches", "8"});
  EXPECT_TRUE(contains(result.out, "makespan 27, bubble 11.1 %; cost 24, bubble 0.0 %")) << result.out;
  EXPECT_TRUE(contains(result.out, "One step alone takes the makespan")) << result.out;
  const Json json = json_of({"simulate", "zb-h2", "--stages", "4", "--micro-batches", "8"});
  EXPECT_NEAR(json.at("bubble_rate"), 0, 1e-12);
  EXPECT_EQ(four_decimals(json.at("bubble_rate_makespan")), 0.1111);
}

TEST(ScheduleDraw, TheWidthIsAsAsked) {
  const auto widest = [](const std::string& text) {
    size_t most = 0;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("lane")) continue;
      most = std::max(
          most, static_cast<size_t>(std::ranges::count_if(line, [](char c) { return (c & 0xC0) != 0x80; })));
    }
    return most;
  };
  const CommandResult wide = schedule({"draw", "1f1b", "--width", "140"});
  const CommandResult narrow = schedule({"draw", "1f1b", "--width", "60"});
  EXPECT_LE(widest(wide.out), 140u);
  EXPECT_GT(widest(wide.out), 100u) << wide.out;
  EXPECT_LE(widest(narrow.out), 60u);
  ::setenv("COLUMNS", "60", 1);
  const CommandResult columns = schedule({"draw", "1f1b"});
  ::unsetenv("COLUMNS");
  EXPECT_EQ(columns.out, narrow.out);
}

// What the command prints on a terminal.
std::string on_terminal() {
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    const std::string program = TROIKA_BINARY_DIR "/troika";
    ::execl(program.c_str(), "troika", "schedule", "draw", "1f1b", nullptr);
    ::_exit(127);
  }
  std::string text;
  char buffer[4096];
  ssize_t got = 0;
  while ((got = ::read(terminal, buffer, sizeof buffer)) > 0) text.append(buffer, static_cast<size_t>(got));
  ::close(terminal);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << text;
  return text;
}

TEST(ScheduleDraw, ColoursAreForTerminals) {
  ::unsetenv("NO_COLOR");
  ::setenv("TERM", "xterm-256color", 1);
  EXPECT_TRUE(contains(on_terminal(), "\x1b["));
  ::setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(contains(on_terminal(), "\x1b["));
  ::unsetenv("NO_COLOR");
  ::setenv("TERM", "dumb", 1);
  EXPECT_FALSE(contains(on_terminal(), "\x1b["));
  ::unsetenv("TERM");
}

TEST(ScheduleDraw, FilesAreWrittenByTheirEnding) {
  const TemporaryFolder folder;
  const Words drawn{"draw", "zb-h1", "--stages", "3", "--micro-batches", "4"};
  for (const char* name : {"a.svg", "a.json", "a.txt", "a.csv", "B.SVG"}) {
    Words words = drawn;
    words.insert(words.end(), {"-o", name});
    const CommandResult result = schedule(words, "", folder.path());
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_TRUE(contains(result.out, std::string(name) + ": written")) << result.out;
  }
  EXPECT_TRUE(read_text(folder / "a.svg").starts_with("<svg"));
  const Json trace = Json::parse(read_text(folder / "a.json"));
  EXPECT_GT(trace.at("traceEvents").size(), 30u);
  const ScheduleRequest request{.lanes = 3, .micro_batches = 4};
  EXPECT_EQ(parse_schedule(read_text(folder / "a.txt"), "a.txt"), make_schedule("zb-h1", request));
  EXPECT_EQ(parse_torch_csv(read_text(folder / "a.csv"), "a.csv").schedule.lanes,
            make_schedule("zb-h1", request).lanes);
  // Nothing else is left there.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 5);
}

TEST(ScheduleDraw, WhatCantBeWrittenIsSaidAndLeavesNothing) {
  const TemporaryFolder folder;
  const CommandResult missing = schedule({"draw", "1f1b", "-o", "no/such.svg"}, "", folder.path());
  EXPECT_EQ(missing.status, 1);
  EXPECT_TRUE(contains(missing.err, "no/such.svg")) << missing.err;
  const CommandResult full = schedule({"draw", "1f1b", "-o", "/dev/full/a.svg"}, "", folder.path());
  EXPECT_EQ(full.status, 1) << full.err;
  const CommandResult ending = schedule({"draw", "1f1b", "-o", "a.png"}, "", folder.path());
  EXPECT_EQ(ending.status, 2);
  EXPECT_TRUE(contains(ending.err, ".svg")) << ending.err;
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(ScheduleDraw, SeveralStandUnderEachOther) {
  const CommandResult text = schedule({"draw", "gpipe", "1f1b"});
  EXPECT_LT(text.out.find("gpipe: 4 lanes"), text.out.find("1f1b: 4 lanes")) << text.out;
  const CommandResult svg = schedule({"draw", "gpipe", "1f1b", "--format", "svg"});
  EXPECT_TRUE(contains(svg.out, "gpipe: 4 lanes") && contains(svg.out, "1f1b: 4 lanes"));
  EXPECT_EQ(schedule({"draw", "gpipe", "1f1b", "--format", "csv"}).status, 2);
}

TEST(ScheduleDraw, MoreIsStatedOnDemand) {
  const Words small{"draw", "1f1b", "--stages", "2", "--micro-batches", "2", "--format", "actions"};
  const auto with = [&](const Words& more) {
    Words words = small;
    words.insert(words.end(), more.begin(), more.end());
    return schedule(words).out;
  };
  EXPECT_FALSE(contains(with({}), "SF"));
  EXPECT_TRUE(contains(with({"--messages"}), "0SF0>1"));
  EXPECT_FALSE(contains(with({"--messages"}), "1O"));
  for (const char* action : {"0L0", "0SF0>1", "1RF0<0", "1R", "1O"}) {
    EXPECT_TRUE(contains(with({"--whole-step"}), action)) << action;
  }
  EXPECT_TRUE(contains(with({"--recompute", "0"}), "0C1 0B1"));
  EXPECT_TRUE(contains(with({"--reduce", "0.5"}), "0R"));
  const std::string forward = with({"--forward-only"});
  EXPECT_TRUE(contains(forward, "kind=forward") && contains(forward, "0F1") && !contains(forward, "B"))
      << forward;
}

TEST(ScheduleSimulate, PublishedBubbleOfZeroBubble) {
  const Json json = json_of({"simulate", "zb-h1", "--stages", "8", "--micro-batches", "24", "--forward",
                             "18.522", "--input", "18.086", "--weight", "9.337", "--comm", "0.601"});
  EXPECT_EQ(four_decimals(json.at("bubble_rate")), 0.1585);
  EXPECT_EQ(json.at("utilization").size(), 8u);
  for (const char* peaks : {"peak_activations", "peak_weight_pending", "peak_held"}) {
    EXPECT_EQ(json.at(peaks).size(), 8u);
  }
  EXPECT_EQ(json.at("messages"), 2 * 7 * 24);
  EXPECT_EQ(json.at("stages"), 8);
  EXPECT_EQ(json.at("micro_batches"), 24);
}

TEST(ScheduleSimulate, ABackwardIsTheSumOfItsParts) {
  const Json parts = json_of({"simulate", "1f1b", "--input", "1.25", "--weight", "0.75"});
  const Json whole = json_of({"simulate", "1f1b", "--backward", "2"});
  EXPECT_EQ(parts.at("makespan"), whole.at("makespan"));
  EXPECT_EQ(whole.at("makespan"), 33);
  // Half and half where it is split.
  EXPECT_EQ(json_of({"simulate", "zb-h1", "--backward", "2"}).at("cost"), 27);
  EXPECT_EQ(schedule({"simulate", "1f1b", "--backward", "2", "--weight", "1"}).status, 2);
}

TEST(ScheduleSimulate, TimesAreOfAChunk) {
  const Json json = json_of({"simulate", "interleaved-1f1b", "--chunks", "3"});
  EXPECT_EQ(json.at("chunks"), 3);
  EXPECT_EQ(json.at("makespan"), (8 * 3 + 3) * 3);
  EXPECT_EQ(json_of({"simulate", "dualpipe-v"}).at("chunks"), 2);
}

TEST(ScheduleSimulate, LoadsReductionsAndUpdatesTakeTheirTime) {
  const double plain = json_of({"simulate", "1f1b"}).at("makespan");
  EXPECT_EQ(json_of({"simulate", "1f1b", "--reduce", "2", "--update", "0.5"}).at("makespan"), plain + 2.5);
  EXPECT_EQ(
      json_of({"simulate", "1f1b", "--load", "0.25", "--micro-batches", "1", "--stages", "1"}).at("makespan"),
      3.25);
}

TEST(ScheduleSimulate, MeasuredCostsAreAFile) {
  const TemporaryFolder folder;
  const auto with = [&](const std::string& costs, int status) {
    write_whole(folder / "costs.json", costs);
    const CommandResult result = schedule({"simulate", "1f1b", "--stages", "2", "--micro-batches", "3",
                                           "--costs", folder / "costs.json", "--json"});
    EXPECT_EQ(result.status, status) << costs << result.err;
    return status == 0 ? result.out : result.err;
  };
  const Json json = Json::parse(with(R"({"stages": [{"forward": 1, "backward": 2, "activation_bytes": 100},
                                                    {"forward": 2, "input": 1, "weight": 1, "update": 0.5}],
                                         "link": {"latency": 0.25},
                                         "links": [{"from": 1, "to": 0, "latency": 0.75}]})",
                                     0));
  // 1 (0F0) + 0.25 + 3 * 4 (lane 1) + 0.75 + 2 (0B2).
  EXPECT_EQ(json.at("makespan"), 16);
  EXPECT_EQ(json.at("peak_bytes").at(0), 200);
  // Forwards alone pay the link from lane 0 to lane 1, not the one back.
  EXPECT_EQ(json_of({"simulate", "1f1b", "--stages", "2", "--micro-batches", "3", "--forward-only", "--costs",
                     folder / "costs.json"})
                .at("makespan"),
            7.25);
  EXPECT_EQ(Json::parse(with(R"({"stages": [{"forward": 1, "backward": 2}]})", 0)).at("makespan"), 12);
  struct Case {
    const char *costs, *says;
  };
  const Case cases[] = {
      {R"({"stages": [{"forwards": 1, "backward": 2}]})", "\"forward\""},
      {R"({"stages": [{"forward": 1}]})", "\"backward\""},
      {R"({"stages": [{"forward": 1, "backward": 2, "wieght": 1}]})", "\"weight\""},
      {R"({"stages": [{"forward": -1, "backward": 2}]})", "stage 0: forward"},
      {R"({"stages": [{"forward": "1", "backward": 2}]})", "stage 0: forward"},
      {R"({"stages": [{"forward": 1, "forward": 2, "backward": 0}]})", "\"forward\" is given twice"},
      {R"({"stages": [{"forward": 1, "backward": 2}], "links": [{"from": 0, "to": 2}]})", "no lane 2"},
      {R"({"stages": [{"forward": 1, "backward": 2}], "links": [{"from": 1, "to": 1}]})", "from 1 to 1"},
      {R"({"stages": [{"forward": 1, "backward": 2}], "links": [{"from": 0, "to": 1}, {"from": 0, "to": 1}]})",
       "from 0 to 1 is given twice"},
      {R"({"stages": []})", "\"stages\""},
      {R"({"stage": [{"forward": 1, "backward": 2}]})", "\"stages\""},
      {R"({"stages": [{"forward": 1, "backward": 2}, {"forward": 1, "backward": 2}, {"forward": 1, "backward": 2}]})",
       "3 stages, the schedule has 2"},
      {R"({"stages": [{"forward": 1, "backward": 2}], "link": {"latancy": 1}})", "\"latency\""},
      {R"({"stages": [{"forward": 1, "backward": 2}], "link": 3})", "link"},
      {R"({"stages": [{"forward": 1, "backward": 2}], "links": [{"to": 1}]})", "from"},
      {"[1]", "object"},
      {"{", "not JSON"},
  };
  for (const Case& c : cases) {
    const std::string error = with(c.costs, 1);
    EXPECT_TRUE(contains(error, c.says) && contains(error, "costs.json")) << c.costs << "\n" << error;
  }
  EXPECT_EQ(schedule({"simulate", "1f1b", "--costs", folder / "costs.json", "--comm", "1"}).status, 2);
  EXPECT_EQ(schedule({"simulate", "1f1b", "--costs", folder / "none.json"}).status, 1);
}

TEST(ScheduleSimulate, AMemoryLimitHolds) {
  EXPECT_EQ(schedule({"simulate", "1f1b", "--memory-limit", "4"}).status, 0);
  const CommandResult result = schedule({"simulate", "1f1b", "--memory-limit", "3.5"});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(contains(result.err, "3.5")) << result.err;
  const Json automatic = json_of({"simulate", "zb-auto", "--memory-limit", "3.5"});
  for (const double held : automatic.at("peak_held")) EXPECT_LE(held, 3.5);
}

}  // namespace
}  // namespace troika
