// Tests what a run stores about a step besides its tensors: its Progress, as the text that is written with a commit on nvme.
#include "trainer/checkpoints/checkpoint.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace spillway::trainer::checkpoint_test {
namespace {

Progress progress() {
  Progress p;
  p.step = 7, p.updates = 5, p.cursor = 70, p.tokens = 700, p.made_with = "cpu, avx2";
  return p;
}

TEST(ProgressRecord, ComesBack) {
  const auto record = parse_record(to_record(progress(), "hash", "{}"));
  ASSERT_TRUE(record);
  EXPECT_EQ(record->progress.step, 7);
  EXPECT_EQ(record->progress.updates, 5);
  EXPECT_EQ(record->progress.cursor, 70);
  EXPECT_EQ(record->progress.tokens, 700);
  EXPECT_EQ(record->progress.made_with, "cpu, avx2");
  EXPECT_FALSE(record->progress.loss_scale) << "it is 1 for good";
}

TEST(ProgressRecord, HoldsALossScaleThatMoves) {
  Progress p = progress();
  p.loss_scale = {0x1p-3, 1999};
  const auto record = parse_record(to_record(p, "", ""));
  ASSERT_TRUE(record && record->progress.loss_scale);
  EXPECT_EQ(*record->progress.loss_scale, (optim::LossScale{0x1p-3, 1999}));
}

// A stored value that is no valid loss scale is ignored. An fp16 run then starts with its initial scale.
TEST(ProgressRecord, TakesNoOtherNumberForALossScale) {
  Progress p = progress();
  p.loss_scale.emplace();
  for (const nlohmann::json& wrong :
       {nlohmann::json(3), nlohmann::json(0), nlohmann::json(-2.0), nlohmann::json("65536"), nlohmann::json()}) {
    nlohmann::json json = nlohmann::json::parse(to_record(p, "", ""));
    json["loss_scale"] = wrong;
    const auto record = parse_record(json.dump());
    ASSERT_TRUE(record) << wrong;
    EXPECT_FALSE(record->progress.loss_scale) << wrong;
  }
}

}  // namespace
}  // namespace spillway::trainer::checkpoint_test
