#include "optim/rule.h"

namespace spillway::optim {

const char* to_string(Rule rule) {
  switch (rule) {
    case Rule::sgd:
      return "sgd";
    case Rule::sgd_momentum:
      return "sgd_momentum";
    case Rule::sgd_nesterov:
      return "sgd_nesterov";
    case Rule::adam:
      return "adam";
    case Rule::adam_amsgrad:
      return "adam_amsgrad";
    case Rule::adamw:
      return "adamw";
    case Rule::adamw_amsgrad:
      return "adamw_amsgrad";
    case Rule::adagrad:
      return "adagrad";
    case Rule::rmsprop:
      return "rmsprop";
    case Rule::rmsprop_momentum:
      return "rmsprop_momentum";
    case Rule::rmsprop_centered:
      return "rmsprop_centered";
    case Rule::rmsprop_centered_momentum:
      return "rmsprop_centered_momentum";
    case Rule::lion:
      return "lion";
    case Rule::muon:
      return "muon";
    case Rule::adafactor:
    case Rule::adafactor_factored:
      break;
  }
  return "adafactor";
}

std::span<const StateArrayName> state_array_names(Rule rule) {
  static constexpr StateArrayName kMomentum[] = {{"momentum", "momentum_buffer"}}, kSum[] = {{"sum", "sum"}},
                                  kAdam[] = {{"m", "exp_avg"}, {"v", "exp_avg_sq"}, {"max v", "max_exp_avg_sq"}},
                                  kRmsprop[] = {{"v", "square_avg"}, {"momentum", "momentum_buffer"}}, kVariance[] = {{"v", "variance"}},
                                  kCentered[] = {{"v", "square_avg"}, {"mean", "grad_avg"}, {"momentum", "momentum_buffer"}};
  const auto first = [&](std::span<const StateArrayName> all) { return all.first(static_cast<size_t>(state_arrays(rule))); };
  switch (rule) {
    case Rule::sgd:
    case Rule::sgd_momentum:
    case Rule::sgd_nesterov:
    case Rule::muon:
      return first(kMomentum);
    case Rule::adagrad:
      return first(kSum);
    case Rule::adafactor:
    case Rule::adafactor_factored:
      return first(kVariance);
    case Rule::rmsprop:
    case Rule::rmsprop_momentum:
      return first(kRmsprop);
    case Rule::rmsprop_centered:
    case Rule::rmsprop_centered_momentum:
      return first(kCentered);
    default:
      return first(kAdam);
  }
}

}  // namespace spillway::optim
