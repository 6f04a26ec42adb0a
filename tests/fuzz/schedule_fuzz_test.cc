// Random mutations of small schedules, the same on every run: whatever the bytes, both readers end with a
// schedule or with a troika::Error; what they read can be written, read again, checked and, if it is valid,
// completed by the passes. Meant for the sanitizer builds.
#include <gtest/gtest.h>

#include "support/fuzz.h"
#include "troika/base/error.h"
#include "troika/base/text.h"
#include "troika/schedule/passes.h"
#include "troika/schedule/schedule_text.h"
#include "troika/schedule/torch_csv.h"
#include "troika/schedule/validate.h"

namespace troika {
namespace {

// Nearly half of the changes are to a digit, or none: most bytes of these texts make no sense alone.
std::string with_mutations(std::string text, FuzzRandom& random, const std::vector<std::string>& words) {
  const size_t changes = 1 + random.below(4);
  for (size_t i = 0; i < changes; ++i) {
    if (random.below(9) < 5) {
      mutate(text, random, words);
      continue;
    }
    const size_t at = random.below(text.size() + 1);
    if (at < text.size() && text[at] >= '0' && text[at] <= '9') {
      text[at] = static_cast<char>('0' + random.below(4));
    }
  }
  return text;
}

struct Counts {
  int read = 0, valid = 0;
};

// A valid schedule stays one when the passes complete it.
void expect_usable(const Schedule& schedule, const std::string& text, Counts& counts) {
  ++counts.read;
  ASSERT_EQ(parse_schedule(to_text(schedule), "again"), schedule) << text;
  const Verdict verdict = validate(schedule);
  if (!verdict.valid()) {
    for (const Fault& fault : verdict.faults) {
      ASSERT_FALSE(fault.reason.empty());
      ASSERT_TRUE(is_utf8(explain(schedule, fault)));
    }
    return;
  }
  ++counts.valid;
  const Schedule step = whole_step(without_messages(schedule));
  const Verdict complete = validate(step, {.buffer_depth = 1, .memory_limit = {}});
  ASSERT_TRUE(complete.valid()) << text << "\n" << explain(step, complete.faults.front());
}

// `read` ends with a schedule that is usable, or with an Error that names `where` first.
template <typename Read>
void fuzz_reader(const std::string& where, int first_key, const std::vector<std::string>& seeds,
                 const std::vector<std::string>& words, const Read& read) {
  constexpr int kRuns = 10'000;
  Counts counts;
  for (int run = 0; run < kRuns; ++run) {
    FuzzRandom random(static_cast<uint64_t>(first_key + run));
    const std::string text = with_mutations(random.one_of(seeds), random, words);
    try {
      expect_usable(read(text), text, counts);
    } catch (const Error& error) {
      ASSERT_TRUE(is_utf8(error.what())) << error.what();
      ASSERT_EQ(std::string_view(error.what()).find(where + ":"), 0U) << error.what();
    }
    if (testing::Test::HasFailure()) FAIL() << "run " << run;
  }
  std::printf("%d runs: %d read, %d valid\n", kRuns, counts.read, counts.valid);
  EXPECT_GT(counts.read, kRuns / 10);
  EXPECT_LT(counts.read, kRuns);
  EXPECT_GT(counts.valid, kRuns / 100);
}

const std::vector<std::string> kTextSeeds = {
    "# kind=train micro_batches=2 edges=0>1 versions=1,1\n0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n",
    "# edges=0>1,0>2,1>2 updates=2 recompute=1 states=messages,updates versions=1,2,1\n"
    "0F0 0F1 0I0 0W0 0O 0B1 0O\n1F0 1C0 1B0 1O 1F1 1C1 1B1 1O\n2F0 2B0 2R 2O 2F1 2B1 2R 2O\n",
    "0L0 0F0 0SF0>1 0RG0<1 0B0 0R 0O\r\n1L0 1RF0<0 1F0 1B0 1SG0>0 1R 1O\r\n",
    "\xEF\xBB\xBF# a comment\n0F0 3F0 3B0 0B0\n\n1F0 2F0 2I0 2W0 1B0\n-\n",
};
const std::vector<std::string> kTextWords = {"#",
                                             "\n",
                                             "\r\n",
                                             " ",
                                             "\t",
                                             "-",
                                             "# kind=forward ",
                                             "versions=",
                                             ",",
                                             "=",
                                             ">",
                                             "<",
                                             "0",
                                             "2147483647",
                                             "2147483646F0 ",
                                             "99999999999",
                                             " 0F0 ",
                                             " 1F0 ",
                                             " 0B1 ",
                                             " 0W0 ",
                                             " 0R ",
                                             " 0O ",
                                             " 0C0 ",
                                             " 0SF0>1 ",
                                             " 1RF0<0 ",
                                             "micro_batches=2147483647 ",
                                             "updates=1000000000 ",
                                             "0F2147483647 ",
                                             std::string(1, '\0'),
                                             "\xFF"};

TEST(Fuzz, ScheduleText) {
  fuzz_reader("fuzz.txt", 3'000'000, kTextSeeds, kTextWords,
              [](const std::string& text) { return parse_schedule(text, "fuzz.txt"); });
}

const std::vector<std::string> kTableSeeds = {
    "0F0,0F1,,,0I0,0W0,0B1\r\n,1F0,1B0,1F1,1B1,,\r\n",
    "0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD\n1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD\n",
    "0UNSHARD,0F0,(0F1;0B0)OVERLAP_F_B,0WAIT_UNSHARD,0B1,0RESHARD\n",
    "\xEF\xBB\xBF\"0F0\",\"3F0\",\"3B0\",\"0B0\"\n1F0,2F0,2B0,1B0\n\"\"\n",
};
const std::vector<std::string> kTableWords = {",",
                                              "\n",
                                              "\r\n",
                                              "\"",
                                              "\"\"",
                                              "(",
                                              ")",
                                              ";",
                                              "()",
                                              "OVERLAP_F_B",
                                              "(0F0;0B0)OVERLAP_F_B",
                                              ",0F0,",
                                              ",1F0,",
                                              ",0B1,",
                                              ",0REDUCE_GRAD,",
                                              "SEND_F",
                                              "RECV_B",
                                              "UNSHARD",
                                              "RESHARD",
                                              "WAIT_",
                                              "0",
                                              "2147483647",
                                              "2147483646F0",
                                              "2147483647SEND_F0",
                                              "99999999999",
                                              "F",
                                              "_",
                                              std::string(1, '\0'),
                                              "\xFF"};

TEST(Fuzz, TorchCsv) {
  fuzz_reader("fuzz.csv", 4'000'000, kTableSeeds, kTableWords, [](const std::string& text) {
    const Schedule schedule = parse_torch_csv(text, "fuzz.csv").schedule;
    std::vector<std::string> notes;
    EXPECT_EQ(parse_torch_csv(to_torch_csv(schedule, &notes), "fuzz.csv").schedule, schedule) << text;
    EXPECT_TRUE(notes.empty()) << notes.front();
    return schedule;
  });
}

}  // namespace
}  // namespace troika
