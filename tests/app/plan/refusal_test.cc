// A refusal names budgets that alone would do, and they do.
#include "app/plan/refusal.h"

#include <gtest/gtest.h>

#include <regex>

#include "base/error.h"
#include "models/model.h"
#include "models/presets.h"

namespace spillway::app::refusal_test {
namespace {

// Deep enough that a disk's rings take less than what they hold.
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

  // Empty when a plan fits.
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
  EXPECT_NE(text.find("(there is 1.00 MiB)"), std::string::npos) << text;
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

}  // namespace
}  // namespace spillway::app::refusal_test
