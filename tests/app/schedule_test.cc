// `troika schedule` list, compare and check, and wrong usage, as a user meets them.
#include "app/schedule_command.h"
#include "support/temporary_folder.h"
#include "troika/base/file.h"
#include "troika/schedule/catalogue.h"

namespace troika {
namespace {

TEST(ScheduleList, EveryScheduleIsThere) {
  const CommandResult text = schedule({"list"});
  const Json json = json_of({"list"});
  ASSERT_EQ(json.at("schedules").size(), catalogue().size());
  for (const CatalogueEntry& entry : catalogue()) {
    for (const std::string_view words :
         {entry.name, entry.summary, entry.bubble, entry.memory, entry.use, entry.paper})
      EXPECT_TRUE(contains(text.out, std::string(words))) << entry.name << ": " << words;
  }
  const CommandResult one = schedule({"list", "zb-h1"});
  EXPECT_TRUE(contains(one.out, "zb-h1: ") && !contains(one.out, "gpipe: ")) << one.out;
  const CommandResult wrong = schedule({"list", "zb-h3"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_TRUE(contains(wrong.err, "did you mean \"zb-h1\"")) << wrong.err;
}

TEST(ScheduleCompare, AllStandInOneTableAndOneIsTaken) {
  const Words sizes{"compare", "--stages", "4", "--micro-batches", "8"};
  const Json json = json_of(sizes);
  ASSERT_EQ(json.at("schedules").size(), catalogue().size());
  double before = 0;
  for (const Json& each : json.at("schedules")) {
    if (!each.contains("makespan")) continue;
    EXPECT_GE(each.at("makespan").get<double>(), before * (1 - 1e-9)) << each;
    before = each.at("makespan");
    if (each.at("name") == "1f1b") {
      EXPECT_EQ(before, 33);
    }
    // One lane's share is divided by the chunks.
    if (each.at("name") == "interleaved-1f1b") {
      EXPECT_EQ(before, 28.5);
    }
    if (each.at("name") == "pipedream") {
      EXPECT_FALSE(each.at("synchronous").get<bool>());
    }
  }
  const CommandResult text = schedule(sizes);
  EXPECT_TRUE(contains(text.out, "Take " + json.at("best").get<std::string>() + ": ")) << text.out;
  EXPECT_TRUE(contains(text.out, json.at("reason").get<std::string>())) << text.out;
  EXPECT_TRUE(contains(text.out, "  best")) << text.out;
  EXPECT_TRUE(contains(text.out, "only where steps overlap")) << text.out;
  EXPECT_TRUE(contains(text.out, "not equal to the serial run")) << text.out;
  for (const CatalogueEntry& entry : catalogue()) EXPECT_TRUE(contains(text.out, std::string(entry.name)));
}

TEST(ScheduleCompare, LimitsAndRefusalsAreSaid) {
  const CommandResult text =
      schedule({"compare", "--stages", "8", "--micro-batches", "4", "--memory-limit", "3"});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_TRUE(contains(text.out, "over the memory limit")) << text.out;
  EXPECT_TRUE(contains(text.out, "left out: pipedream-2bw")) << text.out;
  const CommandResult none = schedule({"compare", "--memory-limit", "0.1"});
  EXPECT_TRUE(contains(none.out, "No choice")) << none.out;
  EXPECT_TRUE(json_of({"compare", "--memory-limit", "0.1"}).at("best").is_null());
  EXPECT_EQ(json_of({"compare", "--overlap"}).at("steps_overlap"), true);
}

TEST(ScheduleCheck, EveryScheduleGoesRoundThroughBothForms) {
  for (const CatalogueEntry& entry : catalogue()) {
    for (const Words& form : {Words{"--format", "actions"}, Words{"--format", "csv", "--messages"}}) {
      // CSV has no word for the updates in the middle of an asynchronous window.
      if (entry.asynchronous && form[1] == "csv") continue;
      Words words{"draw", std::string(entry.name), "--stages", "3", "--micro-batches", "6"};
      words.insert(words.end(), form.begin(), form.end());
      const CommandResult drawn = schedule(words);
      ASSERT_EQ(drawn.status, 0) << drawn.err;
      const Json json = json_of({"check", "-"}, 0, drawn.out);
      EXPECT_EQ(json.at("valid"), true) << entry.name << " " << form[1];
      EXPECT_EQ(json.at("lanes"), 3) << entry.name;
      EXPECT_EQ(json.at("stages"), 3 * entry.default_chunks) << entry.name;
      EXPECT_EQ(json.at("micro_batches").get<int>() % 6, 0) << entry.name;
    }
  }
}

TEST(ScheduleCheck, CsvWithoutTheUpdatesSaysSo) {
  const CommandResult drawn = schedule({"draw", "pipedream", "--format", "csv"});
  EXPECT_EQ(drawn.status, 0);
  EXPECT_TRUE(contains(drawn.err, "optimizer step")) << drawn.err;
}

TEST(ScheduleCheck, SaysWhatAValidOneIs) {
  const std::string text = schedule({"draw", "1f1b", "--format", "actions"}).out;
  const CommandResult result = schedule({"check", "-"}, text);
  EXPECT_EQ(result.status, 0) << result.err;
  for (const char* words : {"valid", "training step", "4 lanes, 4 stages, 8 micro-batches", "4 3 2 1"}) {
    EXPECT_TRUE(contains(result.out, words)) << words << "\n" << result.out;
  }
  const Json json = json_of({"check", "-"}, 0, text);
  EXPECT_GE(json.at("needed_buffer_depth"), 1);
  EXPECT_EQ(json.at("errors").size(), 0u);
  EXPECT_EQ(json.at("peak_held"), (Json{4.0, 3.0, 2.0, 1.0}));
}

TEST(ScheduleCheck, AWrongOneIsRefusedWithTheReason) {
  const std::string wrong = "0F0 0F1 0B0 0B1\n1F0 1B1 1F1 1B0\n";  // 1B1 before its forward
  const CommandResult result = schedule({"check", "-"}, wrong);
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(contains(result.err, "<-- here") && contains(result.err, "1B1")) << result.err;
  const Json json = json_of({"check", "-"}, 1, wrong);
  EXPECT_EQ(json.at("valid"), false);
  const Json& error = json.at("errors").at(0);
  EXPECT_EQ(error.at("lane"), 1);
  EXPECT_EQ(error.at("step"), 1);
  EXPECT_EQ(error.at("action"), "1B1");
  EXPECT_TRUE(contains(error.at("reason"), "1F1")) << error;
}

TEST(ScheduleCheck, ADeadlockShowsWithTheBuffersThatAreThere) {
  // Each lane first sends, then receives: fine with a buffer, stuck without.
  const std::string text =
      schedule({"draw", "1f1b", "--stages", "2", "--micro-batches", "4", "--format", "actions"}).out;
  const CommandResult blocking = schedule({"check", "-", "--blocking"}, text);
  EXPECT_EQ(blocking.status, 1) << blocking.out;
  EXPECT_TRUE(contains(blocking.err, "they were added")) << blocking.err;
  const CommandResult buffered = schedule({"check", "-", "--buffer-depth", "1"}, text);
  EXPECT_EQ(buffered.status, 0) << buffered.err;
  EXPECT_EQ(schedule({"check", "-", "--buffer-depth", "1", "--blocking"}, text).status, 2);
  EXPECT_EQ(schedule({"check", "-", "--memory-limit", "1.5"}, text).status, 1);
  EXPECT_EQ(schedule({"check", "-", "--memory-limit", "2"}, text).status, 0);
}

TEST(ScheduleCheck, WhatCantBeReadIsNamedWithItsPlace) {
  const TemporaryFolder folder;
  write_whole(folder / "wrong.txt", "0F0 0B0\n1F0 oops\n");
  const CommandResult text = schedule({"check", "wrong.txt"}, "", folder.path());
  EXPECT_EQ(text.status, 1);
  EXPECT_TRUE(contains(text.err, "wrong.txt:2") && contains(text.err, "oops")) << text.err;
  write_whole(folder / "wrong.csv", "0F0,0B0\n1F0,oops\n");
  const CommandResult csv = schedule({"check", "wrong.csv"}, "", folder.path());
  EXPECT_EQ(csv.status, 1);
  EXPECT_TRUE(contains(csv.err, "wrong.csv") && contains(csv.err, "oops")) << csv.err;
  EXPECT_EQ(schedule({"check", "-"}, "").status, 1);
  EXPECT_EQ(schedule({"check", "."}, "", folder.path()).status, 1);
}

TEST(ScheduleUsage, WrongWordsAndNumbers) {
  struct Case {
    Words words;
    const char* says;
  };
  const Case cases[] = {
      {{"drwa", "1f1b"}, "did you mean \"draw\""},
      {{}, "ubcommand"},
      {{"draw"}, "required"},
      {{"draw", "zb-h3"}, "did you mean \"zb-h1\""},
      {{"draw", "nothing.txt"}, "there is no file nothing.txt"},
      {{"check", "no/such"}, "there is no file no/such"},
      {{"check", "1f1b"}, "troika schedule draw 1f1b --format actions | troika schedule check -"},
      {{"draw", "-", "-"}, "standard input can be read once"},
      {{"check", "zb-h3"}, "neither a file nor a schedule"},
      {{"draw", "1f1b", "--stage", "3"}, "did you mean \"--stages\""},
      {{"draw", "1f1b", "--stages", "0"}, "--stages"},
      {{"draw", "1f1b", "--stages", "-3"}, "--stages"},
      {{"draw", "1f1b", "--stages", "many"},
       "--stages: expected a whole number from 1 to 1,000,000, got many"},
      {{"draw", "1f1b", "--stages", "4.0"}, "expected a whole number"},
      {{"draw", "1f1b", "--stages", ""}, "--stages"},
      {{"draw", "1f1b", "--width", "19"}, "--width: expected a whole number from 20"},
      {{"draw", "1f1b", "--width", "50", "--format", "svg"}, "--width is for a timeline"},
      {{"draw", "1f1b", "--forward", "1,5"}, "--forward: expected a number, got 1,5"},
      {{"compare", "--memory-limit", "4GB"}, "--memory-limit: expected a number, got 4GB"},
      {{"draw", "1f1b", "--output", ""}, "--output: expected a file's name"},
      {{"draw", "1f1b", "--output", "-"}, "leave --output out"},
      {{"simulate", "1f1b", "--costs", ""}, "--costs: expected a file's name"},
      {{"draw", "1f1b", "--forward-only", "--reduce", "1"}, "--reduce is about training"},
      {{"draw", "1f1b", "--forward-only", "--update", "0"}, "--update is about training"},
      {{"draw", "1f1b", "--forward-only", "--recompute", "1"}, "--recompute is about training"},
      {{"draw", "1f1b", "--recompute", "-1"}, "--recompute: expected a whole number from 0"},
      {{"draw", "1f1b", "--stages", "99999999999999999999"}, "--stages"},
      {{"draw", "1f1b", "--micro-batches", "0"}, "--micro-batches"},
      {{"draw", "1f1b", "--stages", "1000000", "--micro-batches", "1000000"}, "at most"},
      {{"compare", "--stages", "1000", "--micro-batches", "1000"}, "at most"},
      {{"compare", "--micro-batches", "2.5"}, "--micro-batches"},
      {{"draw", "1f1b", "--chunks", "2"}, "--chunks"},
      {{"draw", "1f1b", "--updates", "2"}, "--updates"},
      {{"draw", "1f1b", "--forward", "-1"}, "--forward"},
      {{"draw", "1f1b", "--input", "nan"}, "--input"},
      {{"draw", "1f1b", "--weight", "inf"}, "--weight"},
      {{"draw", "1f1b", "--backward", "1e300"}, "--backward"},
      {{"draw", "1f1b", "--comm", "-0.5"}, "--comm"},
      {{"simulate", "1f1b", "--load", "nan"}, "--load"},
      {{"compare", "--memory-limit", "0"}, "--memory-limit"},
      {{"check", "-", "--memory-limit", "nan"}, "--memory-limit"},
      {{"check", "-", "--memory-limit", "inf"}, "at most 1e+15"},
      {{"draw", "1f1b", "--recompute", "4"}, "--recompute"},
      {{"draw", "1f1b", "--format", "png"}, "--format"},
      {{"draw", "1f1b", "--format", "svg", "--json"}, "--json"},
      {{"draw", "-", "--stages", "3"}, "--stages"},
      {{"check", "-", "--buffer-depth", "-1"}, "--buffer-depth"},
  };
  for (const Case& c : cases) {
    const CommandResult result = schedule(c.words, "0F0 0B0\n");
    EXPECT_EQ(result.status, 2) << c.says << " " << result.err;
    EXPECT_TRUE(contains(result.err, c.says)) << c.says << "\n" << result.err;
    EXPECT_EQ(result.out, "") << c.says;
  }
  const CommandResult nested = schedule({"draw", "--nothing"});
  EXPECT_TRUE(contains(nested.err, "Run \"troika schedule draw --help\"")) << nested.err;
}

TEST(ScheduleUsage, EverySubcommandHasHelpWithAnExample) {
  for (const char* name : {"list", "draw", "simulate", "compare", "check"}) {
    const CommandResult result = schedule({name, "--help"});
    EXPECT_EQ(result.status, 0) << name;
    EXPECT_TRUE(contains(result.out, "Example: troika schedule " + std::string(name))) << name;
    EXPECT_TRUE(contains(result.out, "--json")) << name;
  }
}

}  // namespace
}  // namespace troika
