// Makes random tiles for every update rule except AdamW, in the state formats that exist for the rule.
#pragma once
#include "optim/rules/settings.h"
#include "tests/optim/support_tile.h"

namespace spillway::test {

inline constexpr optim::Rule kOtherRules[] = {optim::Rule::sgd,
                                              optim::Rule::sgd_momentum,
                                              optim::Rule::sgd_nesterov,
                                              optim::Rule::adam,
                                              optim::Rule::adam_amsgrad,
                                              optim::Rule::adamw_amsgrad,
                                              optim::Rule::adagrad,
                                              optim::Rule::rmsprop,
                                              optim::Rule::rmsprop_momentum,
                                              optim::Rule::rmsprop_centered,
                                              optim::Rule::rmsprop_centered_momentum,
                                              optim::Rule::lion};

inline std::vector<StateFormat> formats_of(optim::Rule rule) {
  std::vector<StateFormat> formats;
  for (StateFormat f : all_formats()) {
    f.rule = rule;
    if (f.moments != Moments::int8) formats.push_back(f);
  }
  return formats;
}

/// Returns settings (learning rate and so on) that select update rule `rule`.
inline optim::RuleSettings settings_of(optim::Rule rule) {
  using namespace optim;
  switch (rule) {
    case Rule::sgd:
      return SgdSettings{};
    case Rule::sgd_momentum:
      return SgdSettings{.momentum = 0.9, .dampening = 0.3};
    case Rule::sgd_nesterov:
      return SgdSettings{.momentum = 0.9, .nesterov = true};
    case Rule::adam:
      return AdamSettings{};
    case Rule::adam_amsgrad:
      return AdamSettings{.amsgrad = true};
    case Rule::adamw:
      return AdamSettings{.decoupled_weight_decay = true};
    case Rule::adamw_amsgrad:
      return AdamSettings{.amsgrad = true, .decoupled_weight_decay = true};
    case Rule::adagrad:
      return AdagradSettings{};
    case Rule::rmsprop:
      return RmspropSettings{};
    case Rule::rmsprop_momentum:
      return RmspropSettings{.momentum = 0.8};
    case Rule::rmsprop_centered:
      return RmspropSettings{.centered = true};
    case Rule::rmsprop_centered_momentum:
      return RmspropSettings{.momentum = 0.8, .centered = true};
    case Rule::muon:
      return MuonSettings{};
    case Rule::adafactor:
    case Rule::adafactor_factored:
      return AdafactorSettings{};
    case Rule::lion:
      break;
  }
  return LionSettings{};
}

/// Returns a tile of ordinary random numbers. State under a square root is not negative.
inline Tile random_rule_tile(const StateFormat& f, std::mt19937_64& random) {
  Tile tile(f);
  std::vector<std::vector<double>> values;
  for (int k = 0; k < 4; ++k) {
    const auto narrow = draw<float>(kTileElems, Values::ordinary, random);
    values.emplace_back(narrow.begin(), narrow.end());
  }
  const bool first_is_square = f.rule == optim::Rule::adagrad || std::string(to_string(f.rule)).starts_with("rmsprop");
  // the running mean of squares must exceed the squared running mean
  for (double& x : values[first_is_square ? 1 : 2]) x = std::abs(x) + (first_is_square ? 100 : 0);
  // the last array of amsgrad is the running maximum of v
  for (size_t i = 0; i < values[3].size(); ++i) values[3][i] = std::max(values[2][i], values[3][i]);
  optim::write_tile<double>(f, {values[0], values[1], values[2], values[3]}, tile.weight.data(), tile.state.data());
  return tile;
}

}  // namespace spillway::test
