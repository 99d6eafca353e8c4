#include "eager/checks.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <set>

#include "base/error.h"

namespace spillway::eager {
namespace {

constexpr double kNoEnd = std::numeric_limits<double>::infinity();

// Throws Error(usage) unless the setting `name` has a value in [least, beyond).
void check(const char* name, double value, double least, double beyond = kNoEnd) {
  if (value >= least && value < beyond) return;
  const std::string wanted = beyond == kNoEnd ? fmt::format("a finite number of {} or above", least)
                                              : fmt::format("a number of {} or above and below {}", least, beyond);
  throw Error(ErrorCode::usage, fmt::format("[optimizer] expected {} for {}, got {}", wanted, name, value));
}

void check_finite(const char* name, double value) {
  if (!std::isfinite(value)) throw Error(ErrorCode::usage, fmt::format("[optimizer] expected a finite number for {}, got {}", name, value));
}

void check_betas(double beta1, double beta2) {
  check("beta1", beta1, 0, 1);
  check("beta2", beta2, 0, 1);
}

void check_rule(const optim::SgdSettings& s) {
  check("momentum", s.momentum, 0);
  check_finite("dampening", s.dampening);
}
void check_rule(const optim::AdamSettings& s) {
  check_betas(s.beta1, s.beta2);
  check("eps", s.eps, 0);
}
void check_rule(const optim::AdagradSettings& s) {
  check("lr_decay", s.lr_decay, 0);
  check("initial_accumulator_value", s.initial_accumulator_value, 0);
  check("eps", s.eps, 0);
}
void check_rule(const optim::RmspropSettings& s) {
  check("alpha", s.alpha, 0);
  check("eps", s.eps, 0);
  check("momentum", s.momentum, 0);
}
void check_rule(const optim::LionSettings& s) { check_betas(s.beta1, s.beta2); }
void check_rule(const optim::MuonSettings& s) {
  check("momentum", s.momentum, 0);
  check_betas(s.beta1, s.beta2);
  check("eps", s.eps, 0);
}
void check_rule(const optim::AdafactorSettings& s) {
  check_finite("beta2_decay", s.beta2_decay);
  if (s.beta2_decay > 0)
    throw Error(ErrorCode::usage, fmt::format("[optimizer] expected a beta2_decay of 0 or below, got {}", s.beta2_decay));
  check("eps1", s.eps1.value_or(0), 0);
  check("eps2", s.eps2, 0);
  check("d", s.d, 1);
}

}  // namespace

void check_learning_rate(double rate) { check("learning rate", rate, 0); }

void check_settings(const optim::RuleSettings& settings) {
  std::visit(
      [](const auto& s) {
        check_learning_rate(s.lr);
        check("weight_decay", s.weight_decay, 0);
        check_rule(s);
      },
      settings);
}

void check_once(const std::vector<std::shared_ptr<nn::Parameter>>& parameters) {
  std::set<const nn::Parameter*> seen;
  for (const auto& parameter : parameters) {
    if (!seen.insert(parameter.get()).second)
      throw Error(ErrorCode::usage, "[optimizer] expected each parameter once, got " + parameter->name +
                                        " twice: each step would update this parameter twice");
  }
}

}  // namespace spillway::eager
