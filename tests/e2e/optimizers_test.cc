// Tests update rules with no, one and three arrays of state per parameter, those on matrices (Muon) and those with factored state
// (Adafactor). Killed runs continue, from the state on nvme or a checkpoint, with bitwise the results of a run that never stopped.
// Checkpoints name the arrays as torch does, and another rule is refused.
#include <gtest/gtest.h>

#include <signal.h>
#include <nlohmann/json.hpp>

#include "tests/e2e/support_nvme_run.h"

namespace spillway::test::optimizers_test {
namespace {

namespace fs = std::filesystem;

struct Optimizer {
  const char* name;
  Args flags;
  std::vector<std::string> arrays;  // names in optimizer.safetensors
};

class Optimizers : public testing::TestWithParam<Optimizer> {
 protected:
  Workplace at;
  Optimizers() { at.write_text("text.txt", 60000); }

  Args run(const std::string& out, Args more) const {
    more.insert(more.end(), GetParam().flags.begin(), GetParam().flags.end());
    return small_run(out, kSteps, "16MiB", more);
  }
  Args on_nvme(const std::string& out) const {
    return run(out, {"--checkpoint-every", "100000", "--nvme", "scratch", "--place-parameters", "nvme", "--place-gradients", "nvme",
                     "--place-optimizer", "nvme"});
  }
  std::string final_file(const std::string& out, const char* file) const {
    return at.read(out + "/checkpoints/step-000000" + std::to_string(kSteps) + "/" + file);
  }
  void expect_same_run(const std::string& got, const std::string& want) const {
    EXPECT_EQ(numbers_of(at.metrics(got)), numbers_of(at.metrics(want)));
    for (const char* file : {"model.safetensors", "optimizer.safetensors"})
      EXPECT_TRUE(final_file(got, file) == final_file(want, file)) << got << ", " << file;
  }
  // Kills the run once `when` holds, then runs it to its end.
  void killed_and_gone_on(const Args& args, const std::function<bool()>& when, const std::string& from) const {
    ASSERT_EQ(at.spillway_until(args, when, SIGKILL).status, 128 + SIGKILL);
    const Finished f = at.spillway(args);
    ASSERT_EQ(f.status, 0) << f.err;
    EXPECT_TRUE(mentions(f.err, from)) << f.err;
  }
};

TEST_P(Optimizers, GoOnWithTheBitsOfARunThatNeverStopped) {
  const Finished straight = at.spillway(run("straight", {"--place-optimizer", "device"}));
  ASSERT_EQ(straight.status, 0) << straight.err;
  killed_and_gone_on(
      on_nvme("nvme"), [&] { return at.metrics("nvme").size() >= 5; }, "from the state on nvme");
  expect_same_run("nvme", "straight");
  killed_and_gone_on(
      run("saved", {"--checkpoint-every", "4", "--place-optimizer", "host"}),
      [&] { return at.metrics("saved").size() >= 10 && fs::exists(at / "saved/checkpoints/step-00000008"); }, "continues at step ");
  expect_same_run("saved", "straight");

  const std::string state = final_file("straight", "optimizer.safetensors");
  for (const std::string& array : GetParam().arrays) EXPECT_TRUE(mentions(state, "." + array + "\"")) << array;
  if (GetParam().arrays.empty()) {
    EXPECT_LT(state.size(), 64u);
  }
  const Finished other = at.spillway(with(run("saved", {}), "--optimizer", "lion"));
  EXPECT_EQ(other.status, 2) << other.err;
}

const Optimizer kOptimizers[] = {
    {"sgd", {"--optimizer", "sgd"}, {}},
    {"sgd_momentum", {"--optimizer", "sgd", "--momentum", "0.9"}, {"momentum_buffer"}},
    {"amsgrad", {"--optimizer", "amsgrad"}, {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}},
    {"rmsprop", {"--optimizer", "rmsprop", "--centered", "--momentum", "0.5"}, {"square_avg", "grad_avg", "momentum_buffer"}},
    {"muon", {"--optimizer", "muon"}, {"momentum_buffer", "exp_avg", "exp_avg_sq"}},
    {"adafactor", {"--optimizer", "adafactor"}, {"variance", "row_var", "col_var"}},
};
INSTANTIATE_TEST_SUITE_P(Rules, Optimizers, testing::ValuesIn(kOptimizers), [](const auto& one) { return one.param.name; });

TEST(OptimizerFlags, EightBitMomentsAreRefusedByName) {
  const Workplace at;
  at.write_text("text.txt", 60000);
  const Finished f = at.spillway(small_run("run", 2, "16MiB", {"--optimizer", "lion", "--moments", "8bit"}));
  EXPECT_EQ(f.status, 2) << f.err;
  EXPECT_TRUE(mentions(f.err, "got lion: only AdamW supports --moments 8bit")) << f.err;
}

// Shows that the plan has host memory for the matrix or parameter that is updated as a whole, and GPU memory for Muon's products.
TEST(OptimizerFlags, WholesArePlannedBesideAGpu) {
  const Workplace at;
  for (const auto& [name, row] : {std::pair("muon", "matrix under way"), std::pair("adafactor", "parameter under way")}) {
    const Finished f = at.spillway({"plan", "--cluster", "1x1xH100-80GiB,1TiB", "--model", "gpt2-124m", "--optimizer", name, "--json"});
    ASSERT_EQ(f.status, 0) << f.err;
    const nlohmann::json plan = nlohmann::json::parse(f.out);
    bool found = false;
    for (const nlohmann::json& r : plan["rows"]) {
      if (r["what"] != row) continue;
      found = true;
      EXPECT_GE(r["bytes"]["host"], 768 * 3072 * 4) << r;
      EXPECT_EQ(r["bytes"]["device"] > 0, name == std::string("muon")) << r;
    }
    EXPECT_TRUE(found) << f.out;
  }
}

// Compares one rank with two micro-batches to two ranks with one micro-batch each, whose gradients are summed in the same way.
class WholesOverRanksMore : public testing::TestWithParam<const char*> {};

TEST_P(WholesOverRanksMore, GoOnFromEachOthersCheckpoints) {
  const Workplace at;
  at.write_text("text.txt", 60000);
  const auto run = [](const std::string& out, bool two_ranks, Args more) {
    more.insert(more.end(), {"--optimizer", GetParam(), "--global-batch-size", "2", "--checkpoint-every", "10"});
    if (two_ranks) more.insert(more.end(), {"--ranks", "2", "--zero-stage", "3", "--place-optimizer", "host"});
    return small_run(out, kSteps, "16MiB", more);
  };
  const auto expect_same = [&](const std::string& got, const std::string& want) {
    const std::string end = "/checkpoints/step-000000" + std::to_string(kSteps) + "/";
    for (const char* file : {"model.safetensors", "optimizer.safetensors"})
      EXPECT_TRUE(at.read(got + end + file) == at.read(want + end + file)) << got << ", " << file;
  };
  ASSERT_EQ(at.spillway(run("one", false, {})).status, 0);
  ASSERT_EQ(at.spillway(run("two", true, {})).status, 0);
  expect_same("two", "one");
  for (const bool two_first : {false, true}) {
    const std::string from = (at / (two_first ? "two" : "one") / "checkpoints/step-00000020").string();
    const std::string out = two_first ? "one-from-two" : "two-from-one";
    const Finished rest = at.spillway(run(out, !two_first, {"--resume", from}));
    ASSERT_EQ(rest.status, 0) << rest.err;
    EXPECT_TRUE(mentions(rest.err, "continues at step 20")) << rest.err;
    expect_same(out, "one");
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, WholesOverRanksMore, testing::Values("muon", "adafactor"), [](const auto& one) { return one.param; });

}  // namespace
}  // namespace spillway::test::optimizers_test
