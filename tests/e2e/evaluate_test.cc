// spillway evaluate, beside what training said of the same data.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/e2e/support_program.h"

namespace spillway::test::evaluate_test {
namespace {

// The loss of a run on data it holds out is its own validation loss, whatever the placement.
TEST(Evaluate, GivesTheValidationLossOfTheRun) {
  const Workplace place;
  place.write_text("text.txt", 20000);
  place.write_text("held.txt", 3000);
  const Finished trained = place.spillway(small_run("run", 3, "64MiB", {"--validation-data", "held.txt"}));
  ASSERT_EQ(trained.status, 0) << trained.err;
  const auto expected = nlohmann::json::parse(place.metrics("run").back())["validation_loss"].get<double>();
  const Args base = {"evaluate", "--model", "run", "--data", "held.txt", "--sequence-length", "16", "--json", "--device-memory", "64MiB"};
  for (const Args& more : {Args{}, Args{"--place-parameters", "nvme", "--nvme", "scratch"}, Args{"--place-parameters", "host"}}) {
    Args args = base;
    args.insert(args.end(), more.begin(), more.end());
    const Finished run = place.spillway(args);
    ASSERT_EQ(run.status, 0) << run.err;
    const auto result = nlohmann::json::parse(run.out);
    EXPECT_EQ(result["loss"].get<double>(), expected);
    EXPECT_EQ(result["perplexity"].get<double>(), std::exp(expected));
    EXPECT_EQ(result["tokens"].get<int>(), (static_cast<int>(place.read("held.txt").size()) - 1) / 16 * 16);
  }
}

TEST(Evaluate, RefusesWhatItCannotRead) {
  const Workplace place;
  place.write_text("text.txt", 4000);
  ASSERT_EQ(place.spillway(small_run("run", 1, "64MiB", {})).status, 0);
  EXPECT_EQ(place.spillway({"evaluate", "--model", "gpt2-tiny", "--data", "text.txt"}).status, 2);
  EXPECT_EQ(place.spillway({"evaluate", "--model", "run", "--data", "text.txt", "--sequence-length", "100000"}).status, 2);
  EXPECT_EQ(place.spillway({"evaluate", "--model", "run", "--data", "none.txt"}).status, 4);
  ASSERT_EQ(place.spillway({"export", "run", "--out", "folder"}).status, 0);
  const Finished text = place.spillway({"evaluate", "--model", "folder", "--data", "text.txt"});
  EXPECT_EQ(text.status, 2);
  EXPECT_TRUE(mentions(text.err, "--tokenizer bytes")) << text.err;
  EXPECT_EQ(place.spillway({"evaluate", "--model", "folder", "--data", "text.txt", "--tokenizer", "bytes"}).status, 0);
}

}  // namespace
}  // namespace spillway::test::evaluate_test
