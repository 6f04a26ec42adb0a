#include "troika/base/text.h"

#include <gtest/gtest.h>

namespace troika {
namespace {

TEST(Text, NearestName) {
  const std::vector<std::string> names = {"batch", "learning_rate", "epochs", "seed"};
  EXPECT_EQ(nearest("bacth", names), "batch");
  EXPECT_EQ(nearest("learning-rate", names), "learning_rate");
  EXPECT_EQ(nearest("epoch", names), "epochs");
  EXPECT_EQ(nearest("momentum_of_inertia", names), "");
  EXPECT_EQ(did_you_mean("sed", names), " (did you mean \"seed\"?)");
}

TEST(Text, Sizes) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1536), "1.5 KB");
  EXPECT_EQ(human_bytes(64.0 * 1024 * 1024), "64.0 MB");
  EXPECT_EQ(human_bytes(300.0 * 1024 * 1024), "300 MB");
}

TEST(Text, Durations) {
  EXPECT_EQ(human_seconds(0.0042), "4.2 ms");
  EXPECT_EQ(human_seconds(0.0000042), "4.2 us");
  EXPECT_EQ(human_seconds(5.25), "5.2 s");
  EXPECT_EQ(human_seconds(83.2), "1 min 23 s");
  EXPECT_EQ(human_seconds(7260), "2 h 1 min");
  EXPECT_EQ(human_seconds(1.0 / 0.0), "unknown");
}

TEST(Text, Commas) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(336776), "336,776");
  EXPECT_EQ(with_commas(-1234567), "-1,234,567");
  EXPECT_EQ(with_commas(-123), "-123");
}

TEST(Text, SplitAndTrim) {
  EXPECT_TRUE(split_text("", ',').empty());
  EXPECT_EQ(split_text("a,,b", ','), (std::vector<std::string>{"a", "", "b"}));
  EXPECT_EQ(trim(" \t a b \r\n"), "a b");
  EXPECT_EQ(trim("  "), "");
}

TEST(Text, PrintableNeverLetsControlsThrough) {
  EXPECT_EQ(printable("a\nb\x1b[31m", 100), "a\\x0Ab\\x1B[31m");
  EXPECT_EQ(printable("caf\xC3\xA9", 100), "caf\xC3\xA9");
  EXPECT_EQ(printable("\xC3\xA9\xC3\xA9", 3), "\xC3\xA9...");
  EXPECT_EQ(printable("\xFF", 100), "\\xFF");
}

TEST(Text, Utf8) {
  EXPECT_TRUE(is_utf8("plain, caf\xC3\xA9, \xE2\x82\xAC, \xF0\x9F\x90\x8E"));
  for (const char* bad :
       {"\xFF", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xC3", "\xE2\x82"}) {
    EXPECT_FALSE(is_utf8(bad));
  }
}

}  // namespace
}  // namespace troika
