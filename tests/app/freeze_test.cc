#include "app/freeze.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "models/model.h"
#include "models/presets.h"

namespace spillway::test {
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
  EXPECT_NE(refusal({"transformer.h.1."}).find("names none"), std::string::npos);
  EXPECT_NE(refusal({"*"}).find("something left to train"), std::string::npos);
}

}  // namespace
}  // namespace spillway::test
