// Names the optimizers' update rules, the amount of state that each keeps per weight, and
// the scalars of one step. rules/rules.h has the formulas. All types are plain values.
#pragma once
#include <span>

#include "base/types.h"

namespace spillway::optim {

/// The update rules, each with the state arrays that it keeps, in the order in which they are stored.
enum class Rule {
  sgd,                        // keeps no state
  sgd_momentum,               // keeps b, the momentum
  sgd_nesterov,               // keeps b, the momentum
  adam,                       // keeps the moments m and v
  adam_amsgrad,               // keeps the moments m and v, and the maximum of v
  adamw,                      // keeps the moments m and v
  adamw_amsgrad,              // keeps the moments m and v, and the maximum of v
  adagrad,                    // keeps s, the sum of squared gradients
  rmsprop,                    // keeps s, the running mean of squared gradients
  rmsprop_momentum,           // keeps rmsprop's s, and b, the momentum
  rmsprop_centered,           // keeps rmsprop's s, and a, the running mean of gradients
  rmsprop_centered_momentum,  // keeps rmsprop's s, a (the running mean of gradients) and b (the momentum)
  lion,                       // keeps m, the momentum
  muon,                       // keeps m, the momentum; for matrices only
  adafactor,                  // keeps v, the second moment; for parameters of one dimension
  adafactor_factored,         // keeps no array, but means of v over rows and over columns (rules/adafactor.h)
};

/// Returns how many state arrays, each as long as the weight, a rule has. All arrays
/// start at zero, except adagrad's, which starts at its initial_accumulator_value.
constexpr int state_arrays(Rule rule) {
  switch (rule) {
    case Rule::sgd:
    case Rule::adafactor_factored:
      return 0;
    case Rule::sgd_momentum:
    case Rule::sgd_nesterov:
    case Rule::adagrad:
    case Rule::rmsprop:
    case Rule::lion:
    case Rule::muon:
    case Rule::adafactor:
      return 1;
    case Rule::adam:
    case Rule::adamw:
    case Rule::rmsprop_momentum:
    case Rule::rmsprop_centered:
      return 2;
    case Rule::adam_amsgrad:
    case Rule::adamw_amsgrad:
    case Rule::rmsprop_centered_momentum:
      break;
  }
  return 3;
}
constexpr int kMaxStateArrays = 3;

/// Returns true if the rule computes the update of a whole matrix at once, not element by element. Embeddings, heads and vectors then use
/// AdamW.
constexpr bool is_of_matrices(Rule rule) { return rule == Rule::muon; }
/// Returns true if the rule is one of Adafactor's two, which update every parameter as a whole. Parameters of two or more dimensions use
/// adafactor_factored.
constexpr bool is_of_parameters(Rule rule) { return rule == Rule::adafactor || rule == Rule::adafactor_factored; }
/// Returns true if the rule computes the update of a whole matrix or parameter at once. For such a rule the CPU's threads compute the
/// update, even if the parameter lies on a GPU.
constexpr bool steps_wholes(Rule rule) { return is_of_matrices(rule) || is_of_parameters(rule); }

const char* to_string(Rule rule);

/// The names of a state array: `brief` in tables, `torch` in torch.optim and in checkpoints.
struct StateArrayName {
  const char *brief, *torch;
};
/// Returns the names of the rule's state arrays, in their order.
std::span<const StateArrayName> state_array_names(Rule rule);

/// The scalars of one step, named as in the formulas (make_scalars of settings.h).
/// Scalars that a rule does not use are 0. rmsprop's alpha is stored in beta2.
template <class T>
struct Scalars {
  T gradient_scale, weight_decay, decay, beta1, one_minus_beta1, beta2, one_minus_beta2, root_correction2, eps, momentum,
      one_minus_dampening, step_size;
};

template <class T, class From>
Scalars<T> rounded(const Scalars<From>& s) {
  const auto r = [](From x) { return static_cast<T>(x); };
  return {r(s.gradient_scale),  r(s.weight_decay),     r(s.decay), r(s.beta1),    r(s.one_minus_beta1),     r(s.beta2),
          r(s.one_minus_beta2), r(s.root_correction2), r(s.eps),   r(s.momentum), r(s.one_minus_dampening), r(s.step_size)};
}

/// The scalars for the gaps between parameters. Under any rule they leave finite numbers unchanged (for amsgrad, provided that
/// the third array is a maximum of v). Zeros remain zeros even if the user's eps is 0, because kGapScalars has an eps of 1.
template <class T>
constexpr Scalars<T> kGapScalars{.gradient_scale = 0,
                                 .weight_decay = 0,
                                 .decay = 1,
                                 .beta1 = 1,
                                 .one_minus_beta1 = 0,
                                 .beta2 = 1,
                                 .one_minus_beta2 = 0,
                                 .root_correction2 = 1,
                                 .eps = 1,
                                 .momentum = 1,
                                 .one_minus_dampening = 0,
                                 .step_size = 0};

}  // namespace spillway::optim
