#include "troika/parallel/torch_errors.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "troika/base/error.h"

namespace troika {
namespace {

std::string what_of(const std::function<void()>& work) {
  try {
    with_plain_errors(work);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(TorchErrors, ComeWithoutTheirStack) {
  EXPECT_EQ(what_of([] { TORCH_CHECK(false, "two sizes differ"); }), "two sizes differ");
}

TEST(TorchErrors, RunningOutOfMemoryHasAWayOut) {
  EXPECT_EQ(what_of([] {
              TORCH_CHECK(false,
                          "[enforce fail at alloc_cpu.cpp:1] err == 0. DefaultCPUAllocator: can't allocate "
                          "memory: you tried to allocate 4398046511104 bytes. Error code 12");
            }),
            "out of memory: a tensor of 4.0 TB was asked for at once; make model.width, model.layers or "
            "train.batch "
            "smaller, or cut the batch into more micro_batches");
  // Words that only look like it stay.
  EXPECT_EQ(explain_torch("you tried to allocate much"), "you tried to allocate much");
}

TEST(TorchErrors, OthersPass) {
  EXPECT_THROW(with_plain_errors([] { fail_usage("no"); }), UsageError);
  EXPECT_NO_THROW(with_plain_errors([] {}));
}

}  // namespace
}  // namespace troika
