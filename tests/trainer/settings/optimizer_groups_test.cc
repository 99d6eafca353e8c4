#include "trainer/settings/optimizer_groups.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace spillway::trainer::optimizer_groups_test {
namespace {

std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    return error.what();
  }
  return "none";
}
std::string refusal(const std::string& text) {
  return refusal([&] { parse_optimizer_group(text); });
}
bool has(const std::string& text, const std::string& piece) { return text.find(piece) != std::string::npos; }

TEST(OptimizerGroups, AreAPatternAndItsSettings) {
  const OptimizerGroup group = parse_optimizer_group("(?:wte|wpe)\\.weight$:lr=1e-4,weight_decay=0");
  EXPECT_EQ(group.pattern, "(?:wte|wpe)\\.weight$");
  EXPECT_EQ(group.learning_rate, 1e-4);
  EXPECT_EQ(group.weight_decay, 0.0);
  EXPECT_FALSE(parse_optimizer_group("x:lr=1").weight_decay.has_value());
}

TEST(OptimizerGroups, RefuseWhatIsNone) {
  EXPECT_TRUE(has(refusal("bias"), "expected PATTERN:key=value"));
  EXPECT_TRUE(has(refusal(":lr=1"), "expected PATTERN:key=value"));
  EXPECT_TRUE(has(refusal("bias:"), "expected lr=X or weight_decay=X"));
  EXPECT_TRUE(has(refusal("bias:betas=1"), "expected lr=X or weight_decay=X after the pattern \"bias\", got \"betas=1\""));
  EXPECT_TRUE(has(refusal("bias:lr"), "got \"lr\""));
  EXPECT_TRUE(has(refusal("bias:lr=x"), "lr"));
  EXPECT_TRUE(has(refusal("bias:lr=-1"), "at least 0"));
  EXPECT_TRUE(has(refusal("bias:lr=1,lr=2"), "expected lr once"));
  EXPECT_TRUE(has(refusal("(bias:lr=1"), "[--optimizer-group]"));
}

const std::vector<std::string> kNames = {"wte.weight", "h.0.ln.bias", "h.0.mlp.weight", "h.0.mlp.bias"};

TEST(OptimizerGroups, TheFirstPatternThatIsFoundHasTheName) {
  const std::vector<OptimizerGroup> groups = {{"mlp", 1, {}}, {"bias$", 2, {}}};
  EXPECT_EQ(groups_of_names(groups, kNames), (std::vector<u16>{0, 2, 1, 1}));
  EXPECT_EQ(groups_of_names({}, kNames), (std::vector<u16>{0, 0, 0, 0}));
}

TEST(OptimizerGroups, APatternMustGetSomething) {
  const auto refused = [](const std::vector<OptimizerGroup>& groups) { return refusal([&] { groups_of_names(groups, kNames); }); };
  EXPECT_TRUE(has(refused({{"attn", 1, {}}}), "none of 4 names, such as wte.weight, h.0.ln.bias, h.0.mlp.weight"));
  EXPECT_TRUE(has(refused({{"bias", 1, {}}, {"ln.bias", 2, {}}}), "\"ln.bias\""));
}

TEST(OptimizerGroups, APatternOfRunningStatisticsAloneIsRefused) {
  const std::vector<std::string> names = {"bn1.weight", "bn1.running_mean", "bn1.running_var"};
  const std::vector<bool> statistic = {false, true, true};
  const auto refused = [&](const char* pattern) {
    return refusal([&] { groups_of_names(std::vector<OptimizerGroup>{{pattern, 1, {}}}, names, statistic); });
  };
  EXPECT_TRUE(has(refused("running_"), "running statistics of batch norm, such as bn1.running_var"));
  EXPECT_EQ(refused("bn1"), "none");
}

}  // namespace
}  // namespace spillway::trainer::optimizer_groups_test
