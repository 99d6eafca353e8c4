// Adafactor (Shazeer and Stern, 2018) in the order of torch.optim.Adafactor. Of a parameter w of n elements as a whole; g is the gradient *
// gradient_scale, |x| the Euclidean norm, mean_r and mean_c over a row and over a column, q = t^beta2_decay:
//   two or more dimensions, of which the last two make a matrix (several lie one after the other):
//     R = R + (mean_r(g g) - R) q,  C = C + (mean_c(g g) - C) q,  v = R C / max(mean of R over the matrix, eps1)
//   else v = v + (g g - v) q
//   u = g / sqrt(max(v, eps1^2))
//   step_size = min(lr, 1 / sqrt(t)) max(eps2, |w| / sqrt(n)) / max(1, |u| / (d sqrt(n)))
//   w = w * (1 - lr * weight_decay) - step_size * u
// A step goes over the parameter twice, as Muon's: adafactor_gather takes the gradient and the state of all of its tiles in,
// adafactor_direction makes u and the new R and C of them, then update_tile (rules/tile.h) moves the weight along u and makes v anew, and
// put_factors writes R and C. Means and norms are summed in fp64 in an order of their own: the bits depend on the parameter alone, not on
// the number of threads.
#pragma once
#include "optim/factors.h"
#include "optim/rules/rules_paths.h"
#include "optim/rules/settings.h"
#include "optim/state_format.h"

namespace spillway::optim {

/// Of f32 or f64: u in whole tiles in front, then R and C, and sums.
i64 adafactor_bytes(const Matrices& m, i64 elems, DType dtype);

/// A parameter on its way; `memory` of adafactor_bytes at a multiple of 64, its numbers of the type of `format`'s arithmetic.
struct AdafactorStep {
  const StateFormat& format;  // the parameter's
  const Matrices matrices;
  const i64 elems;
  std::byte* const memory;
};

/// Tile k of the parameter.
void adafactor_gather(const AdafactorStep& step, i64 k, const std::byte* gradient, const std::byte* weight, const std::byte* state,
                      const Scalars<double>& scalars, const AdafactorSettings& settings);
/// When all are in: what the step_size is to be multiplied by. By all threads of the stream in force, a CPU's.
double adafactor_direction(const AdafactorStep& step, const Scalars<double>& scalars, const AdafactorSettings& settings);
/// Into tile k's new state.
void put_factors(const AdafactorStep& step, i64 k, std::byte* state);

/// w and, of a vector, v, from u.
template <class T>
void adafactor_update(const Arrays<T>& arrays, const T* direction, i64 elems, const Scalars<double>& scalars);

}  // namespace spillway::optim
