#include "optim/lanes_scalar.h"

#include "optim/rules/update_inl.h"

namespace spillway::optim {

template <class T>
void update_scalar(Rule rule, const Arrays<T>& arrays, i64 begin, i64 end, const Scalars<double>& scalars) {
  scalar::update_by(rule, arrays, begin, end, scalars);
}

template void update_scalar(Rule, const Arrays<float>&, i64, i64, const Scalars<double>&);
template void update_scalar(Rule, const Arrays<double>&, i64, i64, const Scalars<double>&);

}  // namespace spillway::optim
