#include "optim/rules/rules.h"

#include <algorithm>

#include "base/error.h"
#include "optim/rules/rules_paths.h"

namespace spillway::optim {

template <class T>
void update_arrays(Rule rule, const Arrays<T>& arrays, i64 elems, const Scalars<double>& scalars, Isa isa) {
  i64 done = 0;
#if defined(__x86_64__)
  if (isa != Isa::scalar) done = elems / kVectorElems * kVectorElems;
  if (isa == Isa::avx2) update_avx2(rule, arrays, 0, done, scalars);
  if (isa == Isa::avx512) update_avx512(rule, arrays, 0, done, scalars);
#endif
  update_scalar(rule, arrays, done, elems, scalars);
}

template <class T>
void update(Rule rule, std::span<T> weight, std::span<const std::span<T>> states, std::span<const T> gradient,
            const Scalars<double>& scalars, Isa isa) {
  require(!is_of_matrices(rule), "[rules] expected an elementwise optimizer");
  require(static_cast<int>(states.size()) == state_arrays(rule), "[rules] expected as many state arrays as the optimizer has");
  require(gradient.size() == weight.size() &&
              std::all_of(states.begin(), states.end(), [&](std::span<T> state) { return state.size() == weight.size(); }),
          "[rules] expected weight, states and gradient of the same length");
  Arrays<T> arrays{.old = {weight.data()}, .next = {weight.data()}, .gradient = gradient.data()};
  for (size_t k = 0; k < states.size(); ++k) arrays.old[1 + k] = arrays.next[1 + k] = states[k].data();
  update_arrays(rule, arrays, static_cast<i64>(weight.size()), scalars, resolve(isa));
}

template void update_arrays(Rule, const Arrays<float>&, i64, const Scalars<double>&, Isa);
template void update_arrays(Rule, const Arrays<double>&, i64, const Scalars<double>&, Isa);
template void update(Rule, std::span<float>, std::span<const std::span<float>>, std::span<const float>, const Scalars<double>&, Isa);
template void update(Rule, std::span<double>, std::span<const std::span<double>>, std::span<const double>, const Scalars<double>&, Isa);

}  // namespace spillway::optim
