// The update rules by name, how much state each keeps of a weight, and the scalars of one step. Their formulas: rules/rules.h. Values.
#pragma once
#include <span>

#include "base/types.h"

namespace spillway::optim {

/// With their arrays of state, in this order.
enum class Rule {
  sgd,                        // none
  sgd_momentum,               // b
  sgd_nesterov,               // b
  adam,                       // m, v
  adam_amsgrad,               // m, v, maximum of v
  adamw,                      // m, v
  adamw_amsgrad,              // m, v, maximum of v
  adagrad,                    // s
  rmsprop,                    // s
  rmsprop_momentum,           // s, b
  rmsprop_centered,           // s, a
  rmsprop_centered_momentum,  // s, a, b
  lion,                       // m
  muon,                       // m; of matrices alone
  adafactor,                  // v; of vectors alone
  adafactor_factored,         // none, but v's means over rows and over columns (rules/adafactor.h)
};

/// How many arrays of state a rule has, each as long as the weight. They begin at zero, adagrad's at its initial_accumulator_value.
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

/// Its steps need a matrix as a whole, not element by element: what is no such matrix it leaves to AdamW.
constexpr bool is_of_matrices(Rule rule) { return rule == Rule::muon; }
/// They need every parameter as a whole; those of two and more dimensions are adafactor_factored's.
constexpr bool is_of_parameters(Rule rule) { return rule == Rule::adafactor || rule == Rule::adafactor_factored; }
/// Either: by the CPU's threads, also where it lies on a GPU.
constexpr bool steps_wholes(Rule rule) { return is_of_matrices(rule) || is_of_parameters(rule); }

const char* to_string(Rule rule);

/// What a table calls an array of state, and its name in torch.optim, which is its name in checkpoints.
struct StateArrayName {
  const char *brief, *torch;
};
/// In the order of the arrays.
std::span<const StateArrayName> state_array_names(Rule rule);

/// What the formulas call by these names (make_scalars of settings.h); what a rule has not is 0. rmsprop's alpha is beta2.
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

/// Numbers stay what they are under these by any rule, zeros with eps 0 too (amsgrad: a maximum of v is one).
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
