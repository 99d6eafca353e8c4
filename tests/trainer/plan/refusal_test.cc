// Tests the refusal of a plan that does not fit. It names budgets, each of which would be enough
// by itself, and flags that need less memory. Planning again with any one of them succeeds.
#include "trainer/plan/refusal.h"

#include <gtest/gtest.h>

#include <regex>

#include "base/error.h"
#include "base/units.h"
#include "models/model.h"
#include "models/presets.h"

namespace spillway::trainer::refusal_test {
namespace {

// Returns a model with so many layers that the staging rings (buffers for disk I/O) take less memory than the state on the disk.
models::ModelConfig deep() {
  models::ModelConfig config = models::preset("gpt2-tiny");
  config.layers = 16;
  return config;
}

struct Refusals : testing::Test {
  const nn::Sequential model = models::build(deep(), DType::f32);
  parallel::PlanRequest base;
  const Rates rates = make_rates(Calibration{}, Device::Kind::cpu, DType::f32, {}, {});

  Refusals() {
    base.model = &model;
    base.layout = parallel::make_layout(model);
    base.micro_batch_size = 4;
    base.sequence_length = 128;
  }

  // Returns the text of the planner's refusal for these budgets, or "" if a plan fits.
  std::string refusal(const TierBudgets& budgets) const {
    try {
      choose_plan(base, {}, budgets, rates);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::refused);
      return e.what();
    }
    return "";
  }
};

i64 advised_bytes(const std::string& text, const std::string& flag) {
  std::smatch found;
  if (!std::regex_search(text, found, std::regex("\n  " + flag + " (\\d+)MiB"))) return 0;
  return std::stoll(found[1]) * kMiB;
}

using RefusalsRelease = Refusals;  // these tests run in release builds only, since they make many plans

TEST_F(Refusals, EachWayOutIsOne) {
  const TierBudgets tight{.bytes = {12 * kMiB, 12 * kMiB, 0}};
  const std::string text = refusal(tight);
  const i64 device = advised_bytes(text, "--device-memory"), host = advised_bytes(text, "--host-memory");
  ASSERT_GT(device, 0) << text;
  ASSERT_GT(host, 0) << text;
  TierBudgets larger = tight;
  larger.bytes[0] = device;
  EXPECT_EQ(refusal(larger), "");
  larger.bytes[0] = device - kMiB;
  EXPECT_NE(refusal(larger), "") << "less would have done";
  larger = tight;
  larger.bytes[1] = host;
  EXPECT_EQ(refusal(larger), "");
  larger.bytes[1] = host - kMiB;
  EXPECT_NE(refusal(larger), "") << "less would have done";
}

TEST_F(Refusals, ADiskIsNamedWithTheRoomItNeeds) {
  TierBudgets budgets{.bytes = {12 * kMiB, 32 * kMiB, kMiB}};
  const std::string text = refusal(budgets);
  EXPECT_NE(text.find("(there is 1.00 MiB; "), std::string::npos) << text;
  const i64 room = advised_bytes(text, "--nvme PATH with room for");
  ASSERT_GT(room, 0) << text;
  budgets.bytes[2] = room;
  EXPECT_EQ(refusal(budgets), "");
}

TEST_F(Refusals, WithoutASplitTheNodeIsTooSmall) {
  const std::string text = refusal({.bytes = {4 * kMiB, 0, 0}, .host_from_device = true});
  EXPECT_NE(text.find("a node that grants "), std::string::npos) << text;
  EXPECT_EQ(text.find("--host-memory"), std::string::npos) << text;
}

TEST(Refusal, SizesAreRoundedUpAsAFlagTakesThem) {
  EXPECT_EQ(at_least(kMiB + 1), "2MiB");
  EXPECT_EQ(at_least(kGiB), "1024MiB");
  EXPECT_EQ(at_least(kGiB + 1), "1.1GiB");
  EXPECT_EQ(at_least(146133 * kMiB), "143GiB");
  for (const i64 bytes : {3 * kGiB / 2 + 1, 29409 * kMiB, 7 * kGiB}) EXPECT_GE(parse_bytes(at_least(bytes), "test"), bytes);
}

TEST_F(Refusals, TiersAreApart) {
  const std::string text = refusal({.bytes = {12 * kMiB, 12 * kMiB, 0}});
  EXPECT_TRUE(std::regex_search(text, std::regex("does not fit: device by [0-9.]+ MiB, host by [0-9.]+ MiB at the least"))) << text;
}

// If nothing but the optimizer state is too large, and it is too large for the disk, the refusal offers moments in bf16, with which the
// plan fits.
TEST_F(RefusalsRelease, SmallerStateIsOfferedWhereItFits) {
  TierBudgets budgets{.bytes = {12 * kMiB, 32 * kMiB, 0}};
  budgets.bytes[2] = advised_bytes(refusal(budgets), "--nvme PATH with room for");
  ASSERT_GT(budgets.bytes[2], 0);
  std::string text;
  for (; text.empty() && budgets.bytes[2] > 4 * kMiB; budgets.bytes[2] -= 4 * kMiB) text = refusal(budgets);
  budgets.bytes[2] += 4 * kMiB;
  EXPECT_NE(text.find("\n  --moments bf16: changes the numbers"), std::string::npos) << text;
  base.scheduling.format.moments = optim::Moments::bf16;
  EXPECT_EQ(refusal(budgets), "");
}

TEST_F(Refusals, ASplitMasterIsOfferedAsTheSameNumbers) {
  const nn::Sequential halves = models::build(deep(), DType::bf16);
  base.model = &halves;
  base.scheduling.format = optim::plain_format(DType::bf16);
  TierBudgets budgets{.bytes = {12 * kMiB, 32 * kMiB, 0}};
  budgets.bytes[2] = advised_bytes(refusal(budgets), "--nvme PATH with room for") * 95 / 100;
  const std::string text = refusal(budgets);
  EXPECT_NE(text.find("\n  --master-weights split: the same numbers"), std::string::npos) << text;
  base.scheduling.format.master = optim::Master::split;
  EXPECT_EQ(refusal(budgets), "");
}

// If nothing but the activations is too large, and they are too large for the device, the refusal offers a smaller micro-batch, with
// which the plan fits.
TEST_F(RefusalsRelease, FewerPositionsAreOfferedWhereTheyFit) {
  base.micro_batch_size = 16;
  const TierBudgets budgets{.bytes = {12 * kMiB, 32 * kMiB, kGiB}};
  const std::string text = refusal(budgets);
  std::smatch rows;
  ASSERT_TRUE(std::regex_search(text, rows, std::regex("\n  --micro-batch-size (\\d+): changes the numbers"))) << text;
  base.micro_batch_size = std::stoll(rows[1]);
  EXPECT_EQ(refusal(budgets), "");
  base.micro_batch_size *= 2;
  EXPECT_NE(refusal(budgets), "");
}

// A larger disk alone or more device memory alone would not be enough. The refusal then offers both together.
TEST_F(Refusals, ADiskAndMemoryTogetherAreOfferedWhereADiskIs) {
  base.micro_batch_size = 16;
  const TierBudgets tight{.bytes = {12 * kMiB, 20 * kMiB, kMiB}};
  const std::string text = refusal(tight);
  std::smatch both;
  ASSERT_TRUE(std::regex_search(
      text, both, std::regex("--nvme PATH with room for (\\d+)MiB \\(there is 1.00 MiB; add \\d+MiB\\), and --device-memory (\\d+)MiB")))
      << text;
  TierBudgets budgets = tight;
  budgets.bytes[0] = std::stoll(both[2]) * kMiB, budgets.bytes[2] = std::stoll(both[1]) * kMiB;
  EXPECT_EQ(refusal(budgets), "");
}

}  // namespace
}  // namespace spillway::trainer::refusal_test
