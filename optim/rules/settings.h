// What a user sets of the rules: PyTorch's names and defaults (torch.optim, one struct for one parameter group; maximize is false), and the
// scalars of one step made of them, in fp64.
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

/// AdamW is decoupled_weight_decay; there PyTorch's default weight_decay is 1e-2.
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

/// Not in PyTorch: the paper's defaults. weight_decay is decoupled.
struct LionSettings {
  double lr = 1e-4, beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
};

/// By how much of its learning rate Muon moves a matrix: sqrt(max(1, rows / columns)), or 0.2 sqrt(max(rows, columns)), with which learning
/// rates and weight decays are AdamW's.
enum class MuonScale { original, match_rms_adamw };

/// PyTorch's names and defaults, but for the scale (there original). What is no matrix of features is AdamW's, with the same lr and
/// weight_decay: beta1, beta2 and eps are of that.
struct MuonSettings {
  double lr = 1e-3, momentum = 0.95, weight_decay = 0.1;
  bool nesterov = true;
  MuonScale scale = MuonScale::match_rms_adamw;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
};

/// PyTorch's names and defaults. The learning rate is a bound: a step's is the smaller of it and 1 / sqrt(t), times the root mean square of
/// the parameter (at least eps2). Empty eps1: the machine epsilon of the state's type.
struct AdafactorSettings {
  double lr = 1e-2, beta2_decay = -0.8, eps2 = 1e-3, d = 1, weight_decay = 0;
  std::optional<double> eps1;
};

using RuleSettings =
    std::variant<SgdSettings, AdamSettings, AdagradSettings, RmspropSettings, LionSettings, MuonSettings, AdafactorSettings>;

inline double weight_decay_of(const RuleSettings& settings) {
  return std::visit([](const auto& s) { return s.weight_decay; }, settings);
}

/// Throws Error(usage) on nesterov without momentum or with dampening, as PyTorch does.
Rule rule_of(const SgdSettings& settings);
Rule rule_of(const AdamSettings& settings);
Rule rule_of(const AdagradSettings& settings);
Rule rule_of(const RmspropSettings& settings);
Rule rule_of(const LionSettings& settings);
Rule rule_of(const MuonSettings& settings);
Rule rule_of(const AdafactorSettings& settings);
Rule rule_of(const RuleSettings& settings);

/// `t`: the number of this applied update, from 1, else Error(bug). `gradient_scale`: clip factor / loss scale.
Scalars<double> make_scalars(const SgdSettings& settings, i64 t, double gradient_scale);
Scalars<double> make_scalars(const AdamSettings& settings, i64 t, double gradient_scale);
Scalars<double> make_scalars(const AdagradSettings& settings, i64 t, double gradient_scale);
Scalars<double> make_scalars(const RmspropSettings& settings, i64 t, double gradient_scale);
Scalars<double> make_scalars(const LionSettings& settings, i64 t, double gradient_scale);
/// Of its matrices, their scale left to who knows the shape.
Scalars<double> make_scalars(const MuonSettings& settings, i64 t, double gradient_scale);
/// The step_size without what depends on the parameter (rules/adafactor.h).
Scalars<double> make_scalars(const AdafactorSettings& settings, i64 t, double gradient_scale);
/// Of a step and a segment of their own lr and weight_decay, in place of the settings'.
Scalars<double> make_scalars(RuleSettings settings, double lr, double weight_decay, i64 t, double gradient_scale);

/// Of what a rule of matrices leaves; of any other rule itself.
RuleSettings beside_matrices(const RuleSettings& settings);
/// Which a matrix multiplies the step_size by.
double matrix_scale(const RuleSettings& settings, i64 rows, i64 columns);

}  // namespace spillway::optim
