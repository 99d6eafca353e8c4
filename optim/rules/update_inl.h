// The loop of update() over whole vectors. Include this file after a lanes_*.h file (see rules_inl.h).
#include <type_traits>

#include "optim/rules/rules_inl.h"
#include "optim/rules/rules_paths.h"

namespace spillway::optim::SPILLWAY_ISA {

template <Rule kRule, class L>
SPILLWAY_TARGET void update_vectors(const Arrays<typename L::Element>& arrays, i64 begin, i64 end, const Scalars<double>& scalars) {
  constexpr int kArrays = 1 + state_arrays(kRule);
  const auto s = splats<L>(scalars);
  for (i64 i = begin; i < end; i += L::kWidth) {
    Number<L> x[kArrays];
    for (int k = 0; k < kArrays; ++k) x[k] = {L::load(arrays.old[k] + i)};
    step<kRule>(x, Number<L>{L::load(arrays.gradient + i)}, s);
    for (int k = 0; k < kArrays; ++k) L::template store<false>(arrays.next[k] + i, x[k].lanes);
  }
}

template <class T>
void update_by(Rule rule, const Arrays<T>& arrays, i64 begin, i64 end, const Scalars<double>& scalars) {
  using L = std::conditional_t<std::is_same_v<T, float>, F32, F64>;
  for_rule(rule, [&]<Rule kRule>() { update_vectors<kRule, L>(arrays, begin, end, scalars); });
}

}  // namespace spillway::optim::SPILLWAY_ISA
