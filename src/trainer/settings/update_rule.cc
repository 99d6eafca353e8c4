#include "trainer/settings/update_rule.h"

#include "trainer/settings/option.h"
#include "trainer/settings/text.h"

namespace spillway::trainer {
namespace {

struct NamedRule {
  const char* name;  // value of --optimizer
  optim::RuleSettings defaults;
};

const NamedRule kNamedRules[] = {
    {"adamw", optim::AdamSettings{.beta2 = 0.95, .weight_decay = 0.1, .decoupled_weight_decay = true}},
    {"adam", optim::AdamSettings{}},
    {"amsgrad", optim::AdamSettings{.amsgrad = true}},
    {"sgd", optim::SgdSettings{}},
    {"adagrad", optim::AdagradSettings{}},
    {"rmsprop", optim::RmspropSettings{}},
    {"lion", optim::LionSettings{}},
    {"muon", optim::MuonSettings{}},
    {"adafactor", optim::AdafactorSettings{}},
};

// Copies a flag that is set to the member of the rule's settings. For a flag that is not set, copies the member's default to the flag.
template <class T>
void settle(std::optional<T>& flag, T& member) {
  if (!flag) flag = member;
  member = *flag;
}

// Returns the settings of the update rule that `config` names. Sets the unset flags of that rule in `config` to its defaults.
optim::RuleSettings settled(TrainConfig& config) {
  const auto all = [&](auto& s) {
    settle(config.weight_decay, s.weight_decay);
    if constexpr (requires { s.beta1; }) {
      if (!config.betas) config.betas = {s.beta1, s.beta2};
      s.beta1 = config.betas->at(0), s.beta2 = config.betas->at(1);
    }
    if constexpr (requires { s.eps; }) settle(config.eps, s.eps);
    if constexpr (requires { s.momentum; }) settle(config.momentum, s.momentum);
    if constexpr (requires { s.dampening; }) settle(config.dampening, s.dampening);
    if constexpr (requires { s.nesterov; }) settle(config.nesterov, s.nesterov);
    if constexpr (requires { s.alpha; }) settle(config.alpha, s.alpha);
    if constexpr (requires { s.centered; }) settle(config.centered, s.centered);
    if constexpr (requires { s.scale; }) settle(config.muon_scale, s.scale);
  };
  const auto named = std::ranges::find_if(kNamedRules, [&](const NamedRule& one) { return config.optimizer == one.name; });
  require(named != std::end(kNamedRules), "[optimizer] expected a name that --optimizer takes");
  optim::RuleSettings settings = named->defaults;
  std::visit(all, settings);
  return settings;
}

TrainConfig defaults_of(const std::string& optimizer) {
  TrainConfig config;
  config.optimizer = optimizer;
  settled(config);
  return config;
}

// Refuses options that the configuration's update rule does not have.
void check_rule_options(const TrainConfig& config) {
  const Settings given = config, own = defaults_of(config.optimizer);
  for (const Option* option : options_of(Command::train)) {
    if (!option->of_some_rules || !option->field.get(given) || option->field.get(own)) continue;
    std::string owners;
    for (const NamedRule& one : kNamedRules) {
      if (option->field.get(defaults_of(one.name))) owners += std::string(owners.empty() ? "" : ", ") + one.name;
    }
    refuse("[--" + option->name + "] expected no such flag with --optimizer " + config.optimizer + ": it is an option of " + owners +
           "; leave it out");
  }
}

}  // namespace

optim::RuleSettings update_settings(const TrainConfig& config) {
  TrainConfig all = config;
  return settled(all);
}

std::vector<OptimizerGroup> update_groups(const TrainConfig& config) {
  std::vector<OptimizerGroup> groups;
  for (const std::string& text : config.optimizer_groups) groups.push_back(parse_optimizer_group(text));
  return groups;
}

void resolve_update_rule(TrainConfig& config) {
  check_rule_options(config);
  rule_of(settled(config));  // rule_of() throws an error if settings contradict each other
  update_groups(config);
}

}  // namespace spillway::trainer
