#include "optim/adamw.h"

#include <cmath>

#include "base/error.h"
#include "optim/adamw_paths.h"

namespace spillway::optim {

template <class T>
void adamw_scalar(T* weight, T* m, T* v, const T* gradient, i64 n, const AdamWScalars<T>& s) {
  for (i64 i = 0; i < n; ++i) {
    const T g = gradient[i] * s.gradient_scale;
    const T decayed = weight[i] * s.decay;
    m[i] = m[i] + (g - m[i]) * s.one_minus_beta1;
    v[i] = v[i] * s.beta2 + s.one_minus_beta2 * (g * g);
    weight[i] = decayed - s.step_size * (m[i] / (std::sqrt(v[i]) / s.root_correction2 + s.eps));
  }
}

template <class T>
void adamw_update(std::span<T> weight, std::span<T> m, std::span<T> v, std::span<const T> gradient, const AdamWScalars<T>& s, Isa isa) {
  const auto n = static_cast<i64>(weight.size());
  require(m.size() == weight.size() && v.size() == weight.size() && gradient.size() == weight.size(),
          "[adamw] expected weight, m, v and gradient of one length");
  i64 done = 0;
  switch (resolve(isa)) {
#if defined(__x86_64__)
    case Isa::avx512:
      done = adamw_avx512(weight.data(), m.data(), v.data(), gradient.data(), n, s);
      break;
    case Isa::avx2:
      done = adamw_avx2(weight.data(), m.data(), v.data(), gradient.data(), n, s);
      break;
#endif
    default:
      break;
  }
  adamw_scalar(weight.data() + done, m.data() + done, v.data() + done, gradient.data() + done, n - done, s);
}

template <class T>
AdamWScalars<T> make_adamw_scalars(const AdamWSettings& settings, double learning_rate, double weight_decay, i64 t, double gradient_scale) {
  require(t >= 1, "[adamw] expected the number of the applied update, from 1");
  const double correction1 = 1 - std::pow(settings.beta1, static_cast<double>(t));
  const double correction2 = 1 - std::pow(settings.beta2, static_cast<double>(t));
  return {static_cast<T>(gradient_scale),     static_cast<T>(1 - learning_rate * weight_decay),
          static_cast<T>(1 - settings.beta1), static_cast<T>(settings.beta2),
          static_cast<T>(1 - settings.beta2), static_cast<T>(std::sqrt(correction2)),
          static_cast<T>(settings.eps),       static_cast<T>(learning_rate / correction1)};
}

template void adamw_update(std::span<float>, std::span<float>, std::span<float>, std::span<const float>, const AdamWScalars<float>&, Isa);
template void adamw_update(std::span<double>, std::span<double>, std::span<double>, std::span<const double>, const AdamWScalars<double>&,
                           Isa);
template AdamWScalars<float> make_adamw_scalars(const AdamWSettings&, double, double, i64, double);
template AdamWScalars<double> make_adamw_scalars(const AdamWSettings&, double, double, i64, double);

}  // namespace spillway::optim
