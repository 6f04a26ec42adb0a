#include "troika/schedule/action.h"

#include <gtest/gtest.h>

#include "troika/base/error.h"

namespace troika {
namespace {

TEST(Action, NotationIsReadAsItIsPrinted) {
  for (const char* text :
       {"0F0", "2B7", "2I7", "2W7", "1C2", "12L3", "3R", "0O", "0SF0>2", "2RF0<0", "2SG10>0", "0RG10<2"}) {
    EXPECT_EQ(to_string(parse_action(text)), text);
  }
  EXPECT_EQ(parse_action("2F5"), (Action{Op::forward, 2, 5}));
  EXPECT_EQ(parse_action("0SF3>12"), (Action{Op::send_activation, 0, 3, 12}));
  EXPECT_EQ(to_string(Action{Op::reduce_gradients, 4, 0}), "4R");
}

TEST(Action, AnythingElseIsRefused) {
  for (const char* text : {"", "F0", "2", "2X0", "2F", "2R1", "2F0 ", "-1F0", "2F-1", "2f0", "99999999999F0",
                           "2S0>1", "2SF0", "2SF0<1", "2RF0>1", "2SF0>", "2F0>1", "2FB0"}) {
    EXPECT_THROW(parse_action(text), Error) << text;
  }
}

TEST(Action, EveryKindHasItsOwnLettersAndName) {
  for (const Op one : kAllOps) {
    for (const Op other : kAllOps) {
      if (one == other) continue;
      EXPECT_NE(letters(one), letters(other));
      EXPECT_NE(name_of(one), name_of(other));
    }
  }
}

}  // namespace
}  // namespace troika
