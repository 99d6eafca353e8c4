// The user's settings of the update rules, with PyTorch's names and defaults, and the scalars of one step, which are computed from the
// settings in fp64. One struct stands for one parameter group of torch.optim; PyTorch's setting maximize is always false.
#pragma once
#include <optional>
#include <variant>

#include "base/types.h"
#include "optim/rules/rules.h"

namespace spillway::optim {

struct SgdSettings {
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
};

/// Settings of Adam, and of AdamW if decoupled_weight_decay is set; PyTorch's default weight_decay is 1e-2 for AdamW.
struct AdamSettings {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool amsgrad = false, decoupled_weight_decay = false;
};

struct AdagradSettings {
  double lr = 1e-2, lr_decay = 0, weight_decay = 0, initial_accumulator_value = 0, eps = 1e-10;
};

struct RmspropSettings {
  double lr = 1e-2, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0;
  bool centered = false;
};

/// Settings of Lion, with the paper's defaults, since PyTorch has no Lion. weight_decay is decoupled.
struct LionSettings {
  double lr = 1e-4, beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
};

/// Selects how Muon computes the factor by which it multiplies the learning rate for a matrix. original: sqrt(max(1, rows /
/// columns)). match_rms_adamw: 0.2 sqrt(max(rows, columns)), with which learning rates and weight decays that suit AdamW can be used.
enum class MuonScale { original, match_rms_adamw };

/// Settings of Muon, with PyTorch's names and defaults, except for the scale (PyTorch's is original).
/// Embeddings, heads and vectors use AdamW with Muon's lr and weight_decay, and with these beta1, beta2 and eps.
struct MuonSettings {
  double lr = 1e-3, momentum = 0.95, weight_decay = 0.1;
  bool nesterov = true;
  MuonScale scale = MuonScale::match_rms_adamw;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
};

/// Settings of Adafactor, with PyTorch's names and defaults. The learning rate is an upper bound:
/// a step uses the smaller of the learning rate and 1 / sqrt(t), times the root mean square of the
/// parameter (at least eps2). An empty eps1 stands for the machine epsilon of the state's type.
struct AdafactorSettings {
  double lr = 1e-2, beta2_decay = -0.8, eps2 = 1e-3, d = 1, weight_decay = 0;
  std::optional<double> eps1;
};

using RuleSettings =
    std::variant<SgdSettings, AdamSettings, AdagradSettings, RmspropSettings, LionSettings, MuonSettings, AdafactorSettings>;

inline double weight_decay_of(const RuleSettings& settings) {
  return std::visit([](const auto& s) { return s.weight_decay; }, settings);
}

/// Returns the update rule that the settings select. Throws Error(usage),
/// as PyTorch does, if nesterov is set without momentum or with dampening.
Rule rule_of(const SgdSettings& settings);
Rule rule_of(const AdamSettings& settings);
Rule rule_of(const AdagradSettings& settings);
Rule rule_of(const RmspropSettings& settings);
Rule rule_of(const LionSettings& settings);
Rule rule_of(const MuonSettings& settings);
Rule rule_of(const AdafactorSettings& settings);
Rule rule_of(const RuleSettings& settings);

/// Computes the scalars of one step. `t` counts the applied updates, from 1;
/// Error(bug) if it is below 1. `gradient_scale` is clip factor / loss scale.
Scalars<double> make_scalars(const SgdSettings& settings, i64 t, double gradient_scale);
Scalars<double> make_scalars(const AdamSettings& settings, i64 t, double gradient_scale);
Scalars<double> make_scalars(const AdagradSettings& settings, i64 t, double gradient_scale);
Scalars<double> make_scalars(const RmspropSettings& settings, i64 t, double gradient_scale);
Scalars<double> make_scalars(const LionSettings& settings, i64 t, double gradient_scale);
/// Computes the scalars for Muon's matrices; the caller, who knows the shape, multiplies the step_size by matrix_scale().
Scalars<double> make_scalars(const MuonSettings& settings, i64 t, double gradient_scale);
/// Computes Adafactor's scalars; the step_size lacks the factors that depend on the parameter (rules/adafactor.h).
Scalars<double> make_scalars(const AdafactorSettings& settings, i64 t, double gradient_scale);
/// Computes the scalars with `lr` and `weight_decay` in place of those in the settings, because they may differ from step to step and from
/// segment to segment.
Scalars<double> make_scalars(RuleSettings settings, double lr, double weight_decay, i64 t, double gradient_scale);

/// Returns AdamW's settings for the parameters that Muon does not update
/// (embeddings, heads, vectors). For any other rule, returns `settings`.
RuleSettings beside_matrices(const RuleSettings& settings);
/// Returns the factor by which Muon multiplies the step_size of a matrix of this shape.
double matrix_scale(const RuleSettings& settings, i64 rows, i64 columns);

}  // namespace spillway::optim
