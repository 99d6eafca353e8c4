#include "optim/rules/rules.h"

#include <algorithm>

#include "base/error.h"
#include "optim/rules/rules_paths.h"

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
      break;
  }
  return "lion";
}

template <class T>
void update(Rule rule, std::span<T> weight, std::span<const std::span<T>> states, std::span<const T> gradient,
            const Scalars<double>& scalars, Isa isa) {
  require(static_cast<int>(states.size()) == state_arrays(rule), "[rules] expected the rule's number of state arrays");
  require(gradient.size() == weight.size() &&
              std::all_of(states.begin(), states.end(), [&](std::span<T> state) { return state.size() == weight.size(); }),
          "[rules] expected weight, states and gradient of one length");
  Arrays<T> arrays{.at = {weight.data()}, .gradient = gradient.data()};
  for (size_t k = 0; k < states.size(); ++k) arrays.at[1 + k] = states[k].data();
  const auto n = static_cast<i64>(weight.size());
  i64 done = 0;
  isa = resolve(isa);
#if defined(__x86_64__)
  if (isa != Isa::scalar) done = n / kVectorElems * kVectorElems;
  if (isa == Isa::avx2) update_avx2(rule, arrays, 0, done, scalars);
  if (isa == Isa::avx512) update_avx512(rule, arrays, 0, done, scalars);
#endif
  update_scalar(rule, arrays, done, n, scalars);
}

template void update(Rule, std::span<float>, std::span<const std::span<float>>, std::span<const float>, const Scalars<double>&, Isa);
template void update(Rule, std::span<double>, std::span<const std::span<double>>, std::span<const double>, const Scalars<double>&, Isa);

}  // namespace spillway::optim
