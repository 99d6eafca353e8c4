#include "trainer/plan/freeze.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/model.h"
#include "models/presets.h"
#include "tests/app/support_app.h"

namespace spillway::test::freeze_test {
namespace {

i64 frozen_count(const std::vector<std::string>& patterns) {
  nn::Sequential model = models::build(models::preset("gpt2-tiny"), DType::f32);
  app::freeze_parameters(model, patterns);
  i64 count = 0;
  for (const auto& p : model.parameters) count += p->frozen;
  return count;
}

TEST(Freeze, NamesParametersModulesAndGlobs) {
  EXPECT_EQ(frozen_count({}), 0);
  EXPECT_EQ(frozen_count({"transformer.wte.weight"}), 1);
  EXPECT_EQ(frozen_count({"transformer.wte"}), 1);
  EXPECT_EQ(frozen_count({"transformer.h.1"}), 12);
  EXPECT_EQ(frozen_count({"*.attn.*"}), 4 * 4);
  EXPECT_EQ(frozen_count({"transformer.h.0", "transformer.h.0.ln_1", "*.ln_1.bias"}), 12 + 3);
}

std::string refusal(const std::vector<std::string>& patterns) {
  try {
    frozen_count(patterns);
  } catch (const Error& e) {
    return e.code() == ErrorCode::usage ? e.what() : "another code";
  }
  return "";
}

TEST(Freeze, RefusesWhatNamesNothingAndWhatLeavesNothing) {
  const std::string unknown = refusal({"wte"});
  EXPECT_NE(unknown.find("such as transformer.wte.weight: try '*wte*'"), std::string::npos) << unknown;
  EXPECT_NE(refusal({"transformer.h.1."}).find("matches none"), std::string::npos);
  EXPECT_NE(refusal({"*"}).find("left to train"), std::string::npos);
}

// A run with frozen (not trained) blocks resumes from its checkpoint to the same losses and gradient norms, whether its state is in memory
// or on nvme. The plan times frozen blocks too, and no optimizer state is saved for them.
TEST(FreezeTrain, GoesOnFromItsCheckpointWithTheSameNumbersAnywhere) {
  const app::TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 300; ++i) text += "and it was so. ";
  const std::string data = folder.write("t.txt", text);
  const auto metrics = [&](const std::string& name, const std::vector<std::string>& more) {
    const std::string out = (folder.path() / name).string();
    for (const char* steps : {"2", "4"}) {
      std::vector<std::string> args = {
          "train",    "--model",         "gpt2-tiny", "--data",   data,       "--sequence-length", "32",       "--steps",
          steps,      "--quiet",         "--freeze",  "*.ln_1.*", "--freeze", "transformer.wte",   "--freeze", "transformer.wpe",
          "--freeze", "transformer.h.0", "--out",     out};
      args.insert(args.end(), more.begin(), more.end());
      const app::Outcome outcome = app::run_app(args);
      EXPECT_EQ(outcome.status, 0) << outcome.err;
    }
    std::vector<double> all;
    std::ifstream lines(folder.path() / name / "metrics.jsonl");
    for (std::string line; std::getline(lines, line);) {
      all.push_back(nlohmann::json::parse(line)["loss"]);
      all.push_back(nlohmann::json::parse(line)["grad_norm"]);
    }
    return all;
  };
  const auto in_memory = metrics("memory", {"--device-memory", "256MiB"});
  EXPECT_EQ(in_memory.size(), 8u);
  const std::string nvme = (folder.path() / "s").string();
  EXPECT_EQ(in_memory, metrics("nvme", {"--device-memory", "64MiB", "--host-memory", "64MiB", "--nvme", nvme, "--place-parameters", "nvme",
                                        "--place-gradients", "nvme", "--place-optimizer", "nvme"}));
}

}  // namespace
}  // namespace spillway::test::freeze_test
