// Tests which update rule the given settings select, and which scalars they give.
#include "optim/rules/settings.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace spillway::optim::settings_test {
namespace {

TEST(RuleSettings, NameTheRule) {
  EXPECT_EQ(rule_of(SgdSettings{}), Rule::sgd);
  EXPECT_EQ(rule_of(SgdSettings{.momentum = 0.9}), Rule::sgd_momentum);
  EXPECT_EQ(rule_of(SgdSettings{.momentum = 0.9, .nesterov = true}), Rule::sgd_nesterov);
  EXPECT_EQ(rule_of(AdamSettings{}), Rule::adam);
  EXPECT_EQ(rule_of(AdamSettings{.amsgrad = true}), Rule::adam_amsgrad);
  EXPECT_EQ(rule_of(AdamSettings{.decoupled_weight_decay = true}), Rule::adamw);
  EXPECT_EQ(rule_of(AdamSettings{.amsgrad = true, .decoupled_weight_decay = true}), Rule::adamw_amsgrad);
  EXPECT_EQ(rule_of(AdagradSettings{}), Rule::adagrad);
  EXPECT_EQ(rule_of(RmspropSettings{}), Rule::rmsprop);
  EXPECT_EQ(rule_of(RmspropSettings{.momentum = 0.9}), Rule::rmsprop_momentum);
  EXPECT_EQ(rule_of(RmspropSettings{.centered = true}), Rule::rmsprop_centered);
  EXPECT_EQ(rule_of(RmspropSettings{.momentum = 0.9, .centered = true}), Rule::rmsprop_centered_momentum);
  EXPECT_EQ(rule_of(LionSettings{}), Rule::lion);
}

TEST(RuleSettings, NesterovWantsMomentumAlone) {
  for (const SgdSettings& bad : {SgdSettings{.nesterov = true}, SgdSettings{.momentum = 0.9, .dampening = 0.1, .nesterov = true}}) {
    try {
      rule_of(bad);
      ADD_FAILURE() << "expected an error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::usage);
    }
  }
}

TEST(RuleSettings, UpdatesAreCountedFromOne) {
  EXPECT_THROW(make_scalars(SgdSettings{}, 0, 1.0), Error);
  EXPECT_THROW(make_scalars(AdamSettings{}, 0, 1.0), Error);
  EXPECT_THROW(make_scalars(AdagradSettings{}, 0, 1.0), Error);
  EXPECT_THROW(make_scalars(RmspropSettings{}, 0, 1.0), Error);
  EXPECT_THROW(make_scalars(LionSettings{}, 0, 1.0), Error);
}

TEST(RuleSettings, MakeScalarsInFp64) {
  const auto adam = make_scalars(AdamSettings{.lr = 0.01, .weight_decay = 0.1}, 3, 0.25);
  EXPECT_EQ(adam.gradient_scale, 0.25);
  EXPECT_EQ(adam.decay, 1 - 0.01 * 0.1);
  EXPECT_DOUBLE_EQ(adam.step_size, 0.01 / 0.271);  // 0.271 is 1 - beta^3 with beta = 0.9
  EXPECT_NEAR(adam.root_correction2, std::sqrt(0.002997001), 1e-15);
  EXPECT_DOUBLE_EQ(make_scalars(AdagradSettings{.lr = 0.6, .lr_decay = 0.1}, 3, 1.0).step_size, 0.5);
  const SgdSettings sgd{.momentum = 0.9, .dampening = 0.25};
  EXPECT_EQ(make_scalars(sgd, 1, 1.0).one_minus_dampening, 1);
  EXPECT_EQ(make_scalars(sgd, 2, 1.0).one_minus_dampening, 0.75);
}

}  // namespace
}  // namespace spillway::optim::settings_test
