#include "troika/base/table.h"

#include <gtest/gtest.h>

namespace troika {
namespace {

TEST(Table, AlignsByCharactersNotBytes) {
  Table table({"what", "n", "note"}, {false, true, false});
  table.add({"grün", "1", ""});
  table.add({"a longer one", "1,000", "ß"});
  EXPECT_EQ(table.text(),
            "what              n  note\n"
            "grün              1\n"
            "a longer one  1,000  ß\n");
}

TEST(Table, OfAHeaderAlone) { EXPECT_EQ(Table({"a", "b"}, {true, false}).text(), "a  b\n"); }

}  // namespace
}  // namespace troika
