#include "troika/schedule/action.h"

#include <gtest/gtest.h>

#include "troika/base/error.h"

namespace troika {
namespace {

TEST(Action, NotationIsReadAsItIsPrinted) {
  for (const char* text : {"0F0", "2B7", "12L3", "3R", "0O"}) EXPECT_EQ(to_string(parse_action(text)), text);
  EXPECT_EQ(parse_action("2F5"), (Action{Op::forward, 2, 5}));
  EXPECT_EQ(to_string(Action{Op::reduce_gradients, 4, 0}), "4R");
}

TEST(Action, AnythingElseIsRefused) {
  for (const char* text :
       {"", "F0", "2", "2X0", "2F", "2R1", "2F0 ", "-1F0", "2F-1", "2f0", "99999999999F0"}) {
    EXPECT_THROW(parse_action(text), Error) << text;
  }
}

}  // namespace
}  // namespace troika
