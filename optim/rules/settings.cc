#include "optim/rules/settings.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace spillway::optim {
namespace {

void require_applied(i64 t) { require(t >= 1, "[rules] expected an update number of at least 1"); }

}  // namespace

Rule rule_of(const SgdSettings& settings) {
  if (settings.nesterov && (settings.momentum <= 0 || settings.dampening != 0)) {
    throw Error(ErrorCode::usage, "[sgd] expected a momentum above 0 and a dampening of 0 with nesterov, got momentum " +
                                      std::to_string(settings.momentum) + " and dampening " + std::to_string(settings.dampening) +
                                      ": change these values or turn nesterov off");
  }
  if (settings.momentum == 0) return Rule::sgd;
  return settings.nesterov ? Rule::sgd_nesterov : Rule::sgd_momentum;
}

Rule rule_of(const AdamSettings& settings) {
  if (settings.decoupled_weight_decay) return settings.amsgrad ? Rule::adamw_amsgrad : Rule::adamw;
  return settings.amsgrad ? Rule::adam_amsgrad : Rule::adam;
}

Rule rule_of(const AdagradSettings&) { return Rule::adagrad; }

Rule rule_of(const RmspropSettings& settings) {
  if (settings.centered) return settings.momentum == 0 ? Rule::rmsprop_centered : Rule::rmsprop_centered_momentum;
  return settings.momentum == 0 ? Rule::rmsprop : Rule::rmsprop_momentum;
}

Rule rule_of(const LionSettings&) { return Rule::lion; }

Rule rule_of(const MuonSettings&) { return Rule::muon; }

Rule rule_of(const AdafactorSettings&) { return Rule::adafactor; }
Rule rule_of(const RuleSettings& settings) {
  return std::visit([](const auto& s) { return rule_of(s); }, settings);
}

// PyTorch's momentum buffer starts as the first gradient. So for t = 1 the gradient is added without dampening to a buffer of zeros.
Scalars<double> make_scalars(const SgdSettings& settings, i64 t, double gradient_scale) {
  require_applied(t);
  return {.gradient_scale = gradient_scale,
          .weight_decay = settings.weight_decay,
          .momentum = settings.momentum,
          .one_minus_dampening = t == 1 ? 1 : 1 - settings.dampening,
          .step_size = settings.lr};
}

Scalars<double> make_scalars(const AdamSettings& settings, i64 t, double gradient_scale) {
  require_applied(t);
  const double correction1 = 1 - std::pow(settings.beta1, static_cast<double>(t));
  const double correction2 = 1 - std::pow(settings.beta2, static_cast<double>(t));
  return {.gradient_scale = gradient_scale,
          .weight_decay = settings.weight_decay,
          .decay = 1 - settings.lr * settings.weight_decay,
          .one_minus_beta1 = 1 - settings.beta1,
          .beta2 = settings.beta2,
          .one_minus_beta2 = 1 - settings.beta2,
          .root_correction2 = std::sqrt(correction2),
          .eps = settings.eps,
          .step_size = settings.lr / correction1};
}

Scalars<double> make_scalars(const AdagradSettings& settings, i64 t, double gradient_scale) {
  require_applied(t);
  return {.gradient_scale = gradient_scale,
          .weight_decay = settings.weight_decay,
          .eps = settings.eps,
          .step_size = settings.lr / (1 + static_cast<double>(t - 1) * settings.lr_decay)};
}

Scalars<double> make_scalars(const RmspropSettings& settings, i64 t, double gradient_scale) {
  require_applied(t);
  return {.gradient_scale = gradient_scale,
          .weight_decay = settings.weight_decay,
          .beta2 = settings.alpha,
          .one_minus_beta2 = 1 - settings.alpha,
          .eps = settings.eps,
          .momentum = settings.momentum,
          .step_size = settings.lr};
}

Scalars<double> make_scalars(const LionSettings& settings, i64 t, double gradient_scale) {
  require_applied(t);
  return {.gradient_scale = gradient_scale,
          .decay = 1 - settings.lr * settings.weight_decay,
          .beta1 = settings.beta1,
          .one_minus_beta1 = 1 - settings.beta1,
          .beta2 = settings.beta2,
          .one_minus_beta2 = 1 - settings.beta2,
          .step_size = settings.lr};
}

Scalars<double> make_scalars(const MuonSettings& settings, i64 t, double gradient_scale) {
  require_applied(t);
  return {.gradient_scale = gradient_scale,
          .decay = 1 - settings.lr * settings.weight_decay,
          .one_minus_beta1 = 1 - settings.momentum,
          .step_size = settings.lr};
}

Scalars<double> make_scalars(const AdafactorSettings& settings, i64 t, double gradient_scale) {
  require_applied(t);
  const auto step = static_cast<double>(t);
  const double fresh = std::pow(step, settings.beta2_decay);
  return {.gradient_scale = gradient_scale,
          .decay = 1 - settings.lr * settings.weight_decay,
          .beta2 = 1 - fresh,
          .one_minus_beta2 = fresh,
          .step_size = std::min(settings.lr, 1 / std::sqrt(step))};
}

Scalars<double> make_scalars(RuleSettings settings, double lr, double weight_decay, i64 t, double gradient_scale) {
  const auto of = [&](auto& s) {
    s.lr = lr, s.weight_decay = weight_decay;
    return make_scalars(s, t, gradient_scale);
  };
  return std::visit(of, settings);
}

RuleSettings beside_matrices(const RuleSettings& settings) {
  const auto* muon = std::get_if<MuonSettings>(&settings);
  if (!muon) return settings;
  return AdamSettings{.lr = muon->lr,
                      .beta1 = muon->beta1,
                      .beta2 = muon->beta2,
                      .eps = muon->eps,
                      .weight_decay = muon->weight_decay,
                      .decoupled_weight_decay = true};
}

double matrix_scale(const RuleSettings& settings, i64 rows, i64 columns) {
  const auto r = static_cast<double>(rows), c = static_cast<double>(columns);
  if (std::get<MuonSettings>(settings).scale == MuonScale::original) return std::sqrt(std::max(1.0, r / c));
  return 0.2 * std::sqrt(std::max(r, c));
}

}  // namespace spillway::optim
