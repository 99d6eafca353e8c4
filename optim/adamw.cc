#include "optim/adamw.h"

#include <cmath>

#include "base/error.h"
#include "optim/adamw_tile_paths.h"

namespace spillway::optim {

template <class T>
void adamw_update(std::span<T> weight, std::span<T> m, std::span<T> v, std::span<const T> gradient, const Scalars<T>& s, Isa isa) {
  require(m.size() == weight.size() && v.size() == weight.size() && gradient.size() == weight.size(),
          "[adamw] expected weight, m, v and gradient of the same length");
  const auto bytes = [](std::span<T> span) { return reinterpret_cast<std::byte*>(span.data()); };
  const Columns columns{.gradient = reinterpret_cast<const std::byte*>(gradient.data()),
                        .weight = bytes(weight),
                        .master = nullptr,
                        .m = bytes(m),
                        .v = bytes(v),
                        .new_weight = bytes(weight),
                        .new_master = nullptr,
                        .new_m = bytes(m),
                        .new_v = bytes(v)};
  const StateFormat format = plain_format(DTypeOf<T>::value);
  const auto scalars = rounded<double>(s);
  update_stretch({format, columns, 0, static_cast<i64>(weight.size()), scalars, {}, false}, resolve(isa));
}

template <class T>
Scalars<T> make_adamw_scalars(const AdamWSettings& settings, double learning_rate, double weight_decay, i64 t, double gradient_scale) {
  require(t >= 1, "[adamw] expected an update number of at least 1");
  const double correction1 = 1 - std::pow(settings.beta1, static_cast<double>(t));
  const double correction2 = 1 - std::pow(settings.beta2, static_cast<double>(t));
  return rounded<T>(Scalars<double>{.gradient_scale = gradient_scale,
                                    .decay = 1 - learning_rate * weight_decay,
                                    .one_minus_beta1 = 1 - settings.beta1,
                                    .beta2 = settings.beta2,
                                    .one_minus_beta2 = 1 - settings.beta2,
                                    .root_correction2 = std::sqrt(correction2),
                                    .eps = settings.eps,
                                    .step_size = learning_rate / correction1});
}

template void adamw_update(std::span<float>, std::span<float>, std::span<float>, std::span<const float>, const Scalars<float>&, Isa);
template void adamw_update(std::span<double>, std::span<double>, std::span<double>, std::span<const double>, const Scalars<double>&, Isa);
template Scalars<float> make_adamw_scalars(const AdamWSettings&, double, double, i64, double);
template Scalars<double> make_adamw_scalars(const AdamWSettings&, double, double, i64, double);

}  // namespace spillway::optim
