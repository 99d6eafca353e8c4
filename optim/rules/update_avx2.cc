#if defined(__x86_64__)
#include "optim/lanes_avx2.h"

#include "optim/rules/update_inl.h"

namespace spillway::optim {

template <class T>
void update_avx2(Rule rule, const Arrays<T>& arrays, i64 begin, i64 end, const Scalars<double>& scalars) {
  avx2::update_by(rule, arrays, begin, end, scalars);
}

template void update_avx2(Rule, const Arrays<float>&, i64, i64, const Scalars<double>&);
template void update_avx2(Rule, const Arrays<double>&, i64, i64, const Scalars<double>&);

}  // namespace spillway::optim
#endif
