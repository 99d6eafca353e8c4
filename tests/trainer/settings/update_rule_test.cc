#include "trainer/settings/update_rule.h"

#include <gtest/gtest.h>

#include "tests/trainer/support_trainer.h"

namespace spillway::trainer::update_rule_test {
namespace {

using optim::Rule;

Rule rule_by(const std::vector<std::string>& flags) { return rule_of(update_settings(train_config(flags))); }

TEST(UpdateRuleFlags, NameTheRule) {
  EXPECT_EQ(rule_by({}), Rule::adamw);
  EXPECT_EQ(rule_by({"--optimizer", "adam"}), Rule::adam);
  EXPECT_EQ(rule_by({"--optimizer", "amsgrad"}), Rule::adam_amsgrad);
  EXPECT_EQ(rule_by({"--optimizer", "sgd"}), Rule::sgd);
  EXPECT_EQ(rule_by({"--optimizer", "sgd", "--momentum", "0.9"}), Rule::sgd_momentum);
  EXPECT_EQ(rule_by({"--optimizer", "sgd", "--momentum", "0.9", "--nesterov"}), Rule::sgd_nesterov);
  EXPECT_EQ(rule_by({"--optimizer", "adagrad"}), Rule::adagrad);
  EXPECT_EQ(rule_by({"--optimizer", "rmsprop", "--momentum", "0.9", "--centered"}), Rule::rmsprop_centered_momentum);
  EXPECT_EQ(rule_by({"--optimizer", "lion"}), Rule::lion);
  EXPECT_EQ(rule_by({"--optimizer", "muon"}), Rule::muon);
  EXPECT_EQ(rule_by({"--optimizer", "adafactor"}), Rule::adafactor);
}

// Each optimizer's flags default to the values of torch.optim. There are two exceptions: all optimizers share one default learning rate,
// and adamw has Spillway's defaults for its other settings.
TEST(UpdateRuleFlags, HaveTheRulesDefaults) {
  const auto adamw = std::get<optim::AdamSettings>(update_settings(train_config({})));
  EXPECT_EQ(adamw.beta1, 0.9);
  EXPECT_EQ(adamw.beta2, 0.95);
  EXPECT_EQ(adamw.weight_decay, 0.1);
  EXPECT_TRUE(adamw.decoupled_weight_decay);
  const auto adam = std::get<optim::AdamSettings>(update_settings(train_config({"--optimizer", "adam"})));
  EXPECT_EQ(adam.beta2, 0.999);
  EXPECT_EQ(adam.eps, 1e-8);
  EXPECT_EQ(adam.weight_decay, 0);
  EXPECT_FALSE(adam.decoupled_weight_decay);
  EXPECT_EQ(std::get<optim::AdagradSettings>(update_settings(train_config({"--optimizer", "adagrad"}))).eps, 1e-10);
  EXPECT_EQ(std::get<optim::RmspropSettings>(update_settings(train_config({"--optimizer", "rmsprop"}))).alpha, 0.99);
  const auto lion = std::get<optim::LionSettings>(update_settings(train_config({"--optimizer", "lion", "--weight-decay", "1"})));
  EXPECT_EQ(lion.beta2, 0.99);
  EXPECT_EQ(lion.weight_decay, 1);
  const auto muon = std::get<optim::MuonSettings>(update_settings(train_config({"--optimizer", "muon", "--betas", "0.8,0.9"})));
  EXPECT_EQ(muon.momentum, 0.95);
  EXPECT_EQ(muon.weight_decay, 0.1);
  EXPECT_TRUE(muon.nesterov);
  EXPECT_EQ(muon.scale, optim::MuonScale::match_rms_adamw);
  EXPECT_EQ(std::get<optim::AdamSettings>(beside_matrices(muon)).beta2, 0.9);
  const auto adafactor = std::get<optim::AdafactorSettings>(update_settings(train_config({"--optimizer", "adafactor"})));
  EXPECT_EQ(adafactor.beta2_decay, -0.8);
  EXPECT_EQ(adafactor.eps2, 1e-3);
  EXPECT_EQ(adafactor.d, 1);
  EXPECT_EQ(adafactor.weight_decay, 0);
  EXPECT_FALSE(adafactor.eps1);
}

// A run's configuration stores exactly the settings that its optimizer has. They are read back unchanged.
TEST(UpdateRuleFlags, ComeBackFromTheRunsConfiguration) {
  const std::vector<std::string> given = {"--optimizer", "sgd", "--momentum", "0.8", "--weight-decay", "0.01"};
  const TrainConfig config = train_config(given), again = run_config(to_json(config));
  EXPECT_EQ(again.dampening, 0.0);
  EXPECT_EQ(again.nesterov, false);
  EXPECT_FALSE(again.betas || again.eps || again.alpha || again.centered);
  const auto sgd = std::get<optim::SgdSettings>(update_settings(again));
  EXPECT_EQ(sgd.momentum, 0.8);
  EXPECT_EQ(sgd.weight_decay, 0.01);
  EXPECT_TRUE(number_changes(to_json(config), again).empty());
  EXPECT_EQ(numbers_hash(config), numbers_hash(again));
}

TEST(UpdateRuleFlags, AnotherOptimizerIsAnotherRun) {
  const std::vector<std::string> changes = number_changes(to_json(train_config({})), train_config({"--optimizer", "lion"}));
  ASSERT_FALSE(changes.empty());
  EXPECT_EQ(changes.front(), "optimizer: \"adamw\" -> \"lion\"");
  EXPECT_EQ(number_changes(to_json(train_config({"--optimizer", "sgd", "--momentum", "0.9"})),
                           train_config({"--optimizer", "sgd", "--momentum", "0.8"})),
            std::vector<std::string>{"momentum: 0.9 -> 0.8"});
}

}  // namespace
}  // namespace spillway::trainer::update_rule_test
