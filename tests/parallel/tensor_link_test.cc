// Parcels between lanes, handed over and copied: both give the same tensors, and name what doesn't fit.
#include "troika/parallel/tensor_link.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <limits>

#include "support/error_of.h"
#include "troika/comm/rank_group.h"

namespace troika {
namespace {

constexpr Action kSent{Op::send_activation, 0, 3, 1};

/// Every kind of tensor that may cross a border.
Parcel mixed() {
  Parcel parcel;
  parcel.tensors = {at::arange(6, at::kFloat).view({2, 3}).t(),  // not contiguous
                    at::arange(5, at::kLong),
                    at::ones({3}, at::kBool),
                    at::Tensor(),
                    at::empty({0, 4}, at::kDouble),
                    at::ones({}, at::kDouble),
                    at::ones({7}, at::kBFloat16)};
  parcel.needs_gradient = {1, 0, 0, 0, 1, 1, 1};
  parcel.sample_dims = {1, 0, -1, -1, 0, -2, 0};
  parcel.loss_sum = std::numeric_limits<double>::infinity();
  parcel.weight = 2.5;
  return parcel;
}

class TensorLinkModes : public testing::TestWithParam<bool> {};

TEST_P(TensorLinkModes, WhatArrivesIsWhatWasSent) {
  run_thread_ranks(2, {}, [](Communicator& lanes) {
    TensorLink link(lanes, GetParam());
    for (int64_t step = 1; step < 4; ++step) {
      if (lanes.rank() == 0) {
        link.send(kSent, step, mixed(), 1);
        continue;
      }
      const Parcel got = link.receive(kSent, step, 0), expected = mixed();
      ASSERT_EQ(got.tensors.size(), expected.tensors.size());
      EXPECT_EQ(got.needs_gradient, expected.needs_gradient);
      EXPECT_EQ(got.sample_dims, expected.sample_dims);
      EXPECT_EQ(got.loss_sum, expected.loss_sum);
      EXPECT_EQ(got.weight, expected.weight);
      for (size_t i = 0; i < got.tensors.size(); ++i) {
        ASSERT_EQ(got.tensors[i].defined(), expected.tensors[i].defined()) << i;
        if (!got.tensors[i].defined()) continue;
        EXPECT_EQ(got.tensors[i].scalar_type(), expected.tensors[i].scalar_type()) << i;
        EXPECT_TRUE(at::equal(got.tensors[i], expected.tensors[i])) << i;
      }
    }
  });
}

TEST_P(TensorLinkModes, ManyUnderWayComeInOrder) {
  run_thread_ranks(3, {}, [](Communicator& lanes) {
    TensorLink link(lanes, GetParam());
    constexpr int kParcels = 50;
    if (lanes.rank() != 2) {
      for (int i = 0; i < kParcels; ++i) {
        Parcel parcel;
        parcel.tensors = {at::ones({i}, at::kFloat)};
        link.send({Op::send_gradient, lanes.rank(), i, 2}, 1, std::move(parcel), 2);
      }
      return;
    }
    for (int i = 0; i < kParcels; ++i) {
      for (const int from : {1, 0}) {
        EXPECT_EQ(link.receive({Op::send_gradient, from, i, 2}, 1, from).tensors.at(0).numel(), i);
      }
    }
  });
}

TEST_P(TensorLinkModes, AnotherMessageThanExpectedIsNamed) {
  const std::string text = error_of([] {
    run_thread_ranks(2, {}, [](Communicator& lanes) {
      TensorLink link(lanes, GetParam());
      if (lanes.rank() == 0) {
        link.send({Op::send_activation, 0, 2, 1}, 5, mixed(), 1);
      } else {
        link.receive(kSent, 5, 0);
      }
    });
  });
  EXPECT_NE(text.find("sent 0SF2>1 of step 5 where lane 1 expects 0SF3>1 of step 5"), std::string::npos)
      << text;
}

TEST_P(TensorLinkModes, AFailedRunLeavesNothingBehind) {
  const at::Tensor tensor = at::ones({10});
  error_of([&] {
    run_thread_ranks(2, {}, [&](Communicator& lanes) {
      TensorLink link(lanes, GetParam());
      if (lanes.rank() == 1) fail("before it received");
      Parcel parcel;
      parcel.tensors = {tensor};
      link.send(kSent, 1, std::move(parcel), 1);
      lanes.barrier();
    });
  });
  EXPECT_EQ(tensor.use_count(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Both, TensorLinkModes, testing::Bool());

TEST(TensorLink, HandsOverWithoutACopy) {
  const at::Tensor tensor = at::ones({10});
  run_thread_ranks(2, {}, [&](Communicator& lanes) {
    TensorLink link(lanes);
    Parcel parcel;
    parcel.tensors = {tensor};
    if (lanes.rank() == 0) {
      link.send(kSent, 1, parcel, 1);
    } else {
      EXPECT_EQ(link.receive(kSent, 1, 0).tensors.at(0).data_ptr(), tensor.data_ptr());
    }
  });
}

}  // namespace
}  // namespace troika
