// Tests what a run stores about its validations: which one is the best, that a restart still knows the best one, and which checkpoints
// are pruned.
#include "trainer/checkpoints/standing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/trainer/support_trainer.h"
#include "trainer/checkpoints/checkpoint.h"

namespace spillway::trainer::standing_test {
namespace {

namespace fs = std::filesystem;

TEST(Standing, OnlyAFiniteLossIsTheBest) {
  Standing s;
  EXPECT_FALSE(s.judge(1, NAN));
  EXPECT_FALSE(s.judge(2, -std::numeric_limits<double>::infinity()));
  EXPECT_FALSE(s.best);
  EXPECT_EQ(s.no_better, 2);
  EXPECT_TRUE(s.judge(3, 2.5));
  EXPECT_FALSE(s.judge(4, 2.5)) << "no better";
  EXPECT_FALSE(s.judge(5, NAN));
  EXPECT_EQ(s.best, (Best{3, 2.5}));
  EXPECT_EQ(s.no_better, 2);
}

TEST(Standing, OtherDataBeginAnew) {
  Standing s;
  EXPECT_FALSE(s.validates_on("a"));
  s.judge(1, 3);
  EXPECT_FALSE(s.validates_on("a"));
  EXPECT_EQ(s.best, (Best{1, 3}));
  EXPECT_TRUE(s.validates_on("b"));
  EXPECT_FALSE(s.best);
}

TEST(Standing, ComesBackInARecord) {
  Progress p;
  p.step = 9;
  p.standing = {.best = Best{4, 1.0 / 3},
                .no_better = 2,
                .validated_on = "0123abcd",
                .owes_validation = true,
                .skipped_in_a_row = 3,
                .unsound = true,
                .diverged = true};
  const auto record = parse_record(to_record(p, "", ""));
  ASSERT_TRUE(record);
  EXPECT_EQ(record->progress.standing, p.standing);
  p.standing = {};
  EXPECT_EQ(to_record(p, "", "").find("standing"), std::string::npos) << "a run without all this writes what older programs wrote";
}

TEST(Standing, WhatNoRunWritesIsAsInANewRun) {
  for (const char* odd :
       {"7", "[]", R"({"best_step": -1, "best_loss": 2})", R"({"best_step": 3, "best_loss": null})", R"({"best_step": 3})",
        R"({"best_step": "3", "best_loss": 1})", R"({"no_better": -5, "unsound": 1, "validated_on": 3})",
        R"({"best_step": 18446744073709551615, "best_loss": 1})"}) {
    EXPECT_EQ(standing_of(nlohmann::json::parse(odd)), Standing()) << odd;
  }
}

struct BestFile : testing::Test {
  const TemporaryFolder folder;
  std::string message(const std::string& text) const {
    folder.write("best.json", text);
    return message_of([&] { read_best(folder.path()); });
  }
};

TEST_F(BestFile, IsCheckedBeforeItIsTrusted) {
  fs::create_directories(checkpoint_path(folder.path(), 3));
  EXPECT_EQ(message(R"({"step": 3, "validation_loss": 1.5})"), "no error");
  EXPECT_EQ(read_best(folder.path()), (Best{3, 1.5}));
  for (const char* odd : {"", "{", "[3, 1.5]", R"({"step": "x"})", R"({"step": 3, "validation_loss": null})",
                          R"({"step": 0, "validation_loss": 1})", R"({"step": -3, "validation_loss": 1})",
                          R"({"step": 3, "validation_loss": 1e999})", R"({"step": 18446744073709551615, "validation_loss": 1})"}) {
    EXPECT_NE(message(odd).find("expected a JSON object with step"), std::string::npos) << odd;
  }
  EXPECT_NE(message(R"({"step": 3, "validation_loss": 1.5, "more": ")" + std::string(100'000, 'x') + "\"}").find("[best]"),
            std::string::npos);
}

struct Pruning : testing::Test {
  const TemporaryFolder folder;
  Pruning() {
    for (const i64 step : {5, 10, 15, 20, 25}) fs::create_directories(checkpoint_path(folder.path(), step));
  }
  std::vector<i64> left() const {
    std::vector<i64> steps;
    for (const fs::path& c : checkpoints(folder.path())) steps.push_back(std::stoll(c.filename().string().substr(5)));
    return steps;
  }
};

TEST_F(Pruning, LeavesTheNewestAndTheBest) {
  prune_checkpoints(folder.path(), 2, 10);
  EXPECT_EQ(left(), (std::vector<i64>{10, 20, 25}));
}

TEST_F(Pruning, LeavesTheNewestThatIsKnownToBeGood) {
  prune_checkpoints(folder.path(), 1, {}, 19);
  EXPECT_EQ(left(), (std::vector<i64>{15, 25}));
  prune_checkpoints(folder.path(), 1, {}, 25);
  EXPECT_EQ(left(), (std::vector<i64>{25}));
}

}  // namespace
}  // namespace spillway::trainer::standing_test
