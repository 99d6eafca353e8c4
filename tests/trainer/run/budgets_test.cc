// Tests the memory budgets into which a command's plan must fit, on a fake node whose memory is known.
#include "trainer/run/budgets.h"

#include <gtest/gtest.h>

#include "tests/trainer/support_trainer.h"

namespace spillway::trainer::budgets_test {
namespace {

using Bytes = std::array<i64, offload::kTiers>;

constexpr i64 kGrant = 12 * kGiB - kGrantReserveBytes;  // bytes of memory that a FakeHost lets a run use

TEST(SessionBudgets, WhatNobodySplitIsTheDevicesUntilThePlanSplitsIt) {
  TierBudgets budgets = memory_budgets({}, {}, 1, FakeHost().host());
  EXPECT_EQ(budgets.bytes, (Bytes{kGrant, 0, 0}));
  EXPECT_TRUE(budgets.host_from_device);
  parallel::Plan plan;
  plan.total = {kGiB, 2 * kGiB, 0};
  split_memory(budgets, plan);
  EXPECT_EQ(budgets.bytes, (Bytes{kGrant - 2 * kGiB, 2 * kGiB, 0}));
}

TEST(SessionBudgets, WhatFlagsSayStands) {
  ResourceConfig config;
  config.device_memory_bytes = kGiB;
  TierBudgets budgets = memory_budgets(config, {}, 1, FakeHost().host());
  EXPECT_EQ(budgets.bytes, (Bytes{kGiB, kGrant - kGiB, 0}));
  EXPECT_FALSE(budgets.host_from_device);
  parallel::Plan plan;
  plan.total = {kMiB, kMiB, 0};
  split_memory(budgets, plan);
  EXPECT_EQ(budgets.bytes, (Bytes{kGiB, kGrant - kGiB, 0}));
}

TEST(SessionBudgets, AGpuHasItsOwnMemory) {
  const ChosenDevice gpu{.device = Device::cuda(0), .name = "a GPU", .free_bytes = 40 * kGiB};
  const TierBudgets budgets = memory_budgets({}, gpu, 2, FakeHost().host());
  EXPECT_EQ(budgets.bytes, (Bytes{40 * kGiB, 6 * kGiB - kGrantReserveBytes, 0}));
  EXPECT_FALSE(budgets.host_from_device);
}

TEST(SessionBudgets, ThePathsGiveTheNvmeTier) {
  TierBudgets budgets{.bytes = {1, 2, 0}};
  add_nvme(budgets, {.paths = {{"/a", {}}, {"/b", {}}}, .room_bytes = {600, 400}, .shares = {.weights = {2, 1}}, .is_memory = true});
  EXPECT_EQ(budgets.bytes, (Bytes{1, 2, 900}));
  EXPECT_TRUE(budgets.nvme_is_memory);
}

}  // namespace
}  // namespace spillway::trainer::budgets_test
