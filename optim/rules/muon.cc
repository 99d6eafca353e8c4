#include "optim/rules/muon.h"

#include "base/error.h"
#include "optim/bf16.h"
#include "optim/element.h"

namespace spillway::optim {
namespace {

template <class T>
T value_at(const std::byte* column, bool bf16, i64 i) {
  return bf16 ? static_cast<T>(widen_bf16(load_element<u16>(column, i))) : load_element<T>(column, i);
}

}  // namespace

template <class T>
void direction_tile(const StateFormat& format, const std::byte* gradient, const std::byte* state, i64 elems, const Scalars<double>& scalars,
                    bool nesterov, T* out) {
  require(format.rule == Rule::muon && (format.weight == DType::f64) == (sizeof(T) == 8),
          "[muon] expected a state format of Muon, and double for f64 weights or float for others");
  const auto s = rounded<T>(scalars);
  const std::byte* momentum = state + format.m_begin_bytes();
  const bool bf16_gradient = format.gradient == DType::bf16, bf16_momentum = format.moments == Moments::bf16;
  for (i64 i = 0; i < elems; ++i) {
    const T g = value_at<T>(gradient, bf16_gradient, i) * s.gradient_scale, old = value_at<T>(momentum, bf16_momentum, i);
    const T m = old + (g - old) * s.one_minus_beta1;
    out[i] = nesterov ? m + (g - m) * s.one_minus_beta1 : m;
  }
}

template <class T>
void muon_update(const Arrays<T>& arrays, const T* direction, i64 elems, const Scalars<double>& scalars) {
  const auto s = rounded<T>(scalars);
  for (i64 i = 0; i < elems; ++i) {
    const T g = arrays.gradient[i] * s.gradient_scale, m = arrays.old[1][i];
    arrays.next[1][i] = m + (g - m) * s.one_minus_beta1;
    arrays.next[0][i] = arrays.old[0][i] * s.decay - s.step_size * direction[i];
  }
}

template void direction_tile(const StateFormat&, const std::byte*, const std::byte*, i64, const Scalars<double>&, bool, float*);
template void direction_tile(const StateFormat&, const std::byte*, const std::byte*, i64, const Scalars<double>&, bool, double*);
template void muon_update(const Arrays<float>&, const float*, i64, const Scalars<double>&);
template void muon_update(const Arrays<double>&, const double*, i64, const Scalars<double>&);

}  // namespace spillway::optim
