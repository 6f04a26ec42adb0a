#include "troika/base/mesh.h"

#include <gtest/gtest.h>

#include "troika/base/error.h"

namespace troika {
namespace {

std::string message_of(const std::string& text) {
  try {
    parse_mesh(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Mesh, RankAndCoordinateAreInverse) {
  for (int data = 1; data <= 3; ++data) {
    for (int pipeline = 1; pipeline <= 3; ++pipeline) {
      for (int tensor = 1; tensor <= 3; ++tensor) {
        const Mesh mesh{data, pipeline, tensor};
        for (int rank = 0; rank < mesh.ranks(); ++rank) EXPECT_EQ(mesh.rank(mesh.coordinate(rank)), rank);
      }
    }
  }
}

TEST(Mesh, TensorPeersAreNeighbours) {
  const Mesh mesh{2, 2, 2};
  EXPECT_EQ(mesh.rank({0, 0, 1}), 1);
  EXPECT_EQ(mesh.rank({0, 1, 0}), 2);
  EXPECT_EQ(mesh.rank({1, 0, 0}), 4);
}

TEST(Mesh, ParsesAndPrints) {
  EXPECT_EQ(parse_mesh("data=2,pipeline=3"), (Mesh{2, 3, 1}));
  EXPECT_EQ(parse_mesh(" tensor = 4 "), (Mesh{1, 1, 4}));
  EXPECT_EQ(to_string(Mesh{2, 3, 1}), "data=2,pipeline=3,tensor=1");
  EXPECT_EQ(parse_mesh(to_string(Mesh{5, 1, 7})), (Mesh{5, 1, 7}));
}

TEST(Mesh, SaysWhatIsWrong) {
  EXPECT_NE(message_of("pipline=2").find("did you mean \"pipeline\""), std::string::npos);
  EXPECT_NE(message_of("data=0").find("whole number"), std::string::npos);
  EXPECT_NE(message_of("data=2,data=2").find("twice"), std::string::npos);
  EXPECT_NE(message_of("data=2x").find("2x"), std::string::npos);
  EXPECT_NE(message_of("data").find("axis=degree"), std::string::npos);
  EXPECT_NE(message_of("data=4096,pipeline=4096").find("more than"), std::string::npos);
  EXPECT_NE(message_of("data=99999999999").find("whole number"), std::string::npos);
}

TEST(Mesh, ProductMustBeTheRanks) {
  EXPECT_NO_THROW(require_ranks({2, 2, 1}, 4));
  try {
    require_ranks({2, 2, 1}, 3);
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("2 x 2 x 1 = 4"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace troika
