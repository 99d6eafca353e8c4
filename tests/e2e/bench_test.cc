// Tests that the command `bench` starts its own ranks, prints one table, and saves the measured rates, which planning a run then uses for
// the time of exchanges between ranks.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tests/e2e/support_program.h"

namespace spillway::test::bench_test {
namespace {

struct Bench : testing::Test {
  Workplace at;
  Bench() {
    at.write_text("text.txt", 20000);
    at.before_start([] { ::setenv("XDG_CACHE_HOME", "cache", 1); });
  }
  std::string names(const Finished& f) const {
    std::string all;
    const auto json = nlohmann::json::parse(f.out);
    for (const auto& row : json["rows"]) all += row["name"].get<std::string>() + " ";
    return all;
  }
  Finished train(const std::string& out) const {
    return at.spillway(small_run(out, 1, "64MiB", {"--ranks", "2", "--zero-stage", "1", "--place-parameters", "device"}));
  }
};

using BenchRelease = Bench;
TEST_F(BenchRelease, CommunicatorBetweenTwoRanks) {
  const Finished before = train("before");
  EXPECT_TRUE(before.status == 0 && mentions(before.err, "constant")) << before.err;
  const Finished f = at.spillway({"bench", "communicator", "--json"});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(names(f), "communicator.reduce-scatter communicator.all-gather ");
  const auto all = nlohmann::json::parse(f.out);
  EXPECT_FALSE(all["rows"].empty());
  for (const auto& row : all["rows"]) EXPECT_GT(row["share"], 0) << row;
  const bool busy = all["rows"][0]["busy"];
  EXPECT_EQ(mentions(f.err, "saved to "), !busy) << f.err;
  EXPECT_EQ(mentions(f.err, "the machine was busy: "), busy) << f.err;
  const Finished after = train("after");
  EXPECT_TRUE(after.status == 0) << after.err;
  EXPECT_EQ(mentions(after.err, "until `spillway bench communicator`"), busy) << "used from the cache: " << after.err;
  EXPECT_EQ(numbers_of(at.metrics("after")), numbers_of(at.metrics("before")));
}

struct SoakBench : Bench {};
TEST_F(SoakBench, WithoutAWordAllThatNeedsNoPath) {
  const Finished f = at.spillway({"bench", "--json"});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_TRUE(mentions(f.err, "disk: not measured")) << f.err;
  EXPECT_EQ(names(f),
            "communicator.reduce-scatter communicator.all-gather memory.axpy memory.copy memory.read matmul.f32 matmul.bf16 cpu-adam.f32 ");
}

}  // namespace
}  // namespace spillway::test::bench_test
