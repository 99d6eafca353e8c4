// Adafactor (Shazeer and Stern, 2018) with the operations in the order of torch.optim.Adafactor. A step treats a
// parameter w of n elements as a whole. g is the gradient * gradient_scale, |x| the Euclidean norm, mean_r and mean_c
// the means over a row and over a column, q = t^beta2_decay:
//   two or more dimensions, of which the last two make a matrix (several lie one after the other):
//     R = R + (mean_r(g g) - R) q,  C = C + (mean_c(g g) - C) q,  v = R C / max(mean of R over the matrix, eps1)
//   else v = v + (g g - v) q
//   u = g / sqrt(max(v, eps1^2))
//   step_size = min(lr, 1 / sqrt(t)) max(eps2, |w| / sqrt(n)) / max(1, |u| / (d sqrt(n)))
//   w = w * (1 - lr * weight_decay) - step_size * u
// A step passes over the parameter twice, as Muon's does. In the first pass adafactor_gather collects the gradient and the state of all
// tiles of the parameter, and adafactor_direction computes u and the new R and C from them. In the second pass update_tile (rules/tile.h)
// moves the weight along u and updates v, and put_factors writes R and C. Means and norms are summed in fp64 in a fixed order: the result
// depends bitwise on the parameter alone, not on the number of threads.
#pragma once
#include "optim/factors.h"
#include "optim/rules/rules_paths.h"
#include "optim/rules/settings.h"
#include "optim/state_format.h"

namespace spillway::optim {

/// Returns the bytes of working memory that a step needs for a parameter of f32 or f64: for u in whole tiles, for R and C, and for sums.
i64 adafactor_bytes(const Matrices& m, i64 elems, DType dtype);

/// A parameter in the middle of a step. `memory` has adafactor_bytes() bytes at a multiple of 64 and holds numbers of the type in which
/// `format` computes.
struct AdafactorStep {
  const StateFormat& format;  // the format of the parameter
  const Matrices matrices;
  const i64 elems;
  std::byte* const memory;
};

/// Reads tile k of the parameter, in the first of the two passes of a step.
void adafactor_gather(const AdafactorStep& step, i64 k, const std::byte* gradient, const std::byte* weight, const std::byte* state,
                      const Scalars<double>& scalars, const AdafactorSettings& settings);
/// Computes u, R and C when all tiles have been gathered. Returns the factor by which the caller must multiply the step_size. Uses all
/// threads of the current stream, which must be a CPU's.
double adafactor_direction(const AdafactorStep& step, const Scalars<double>& scalars, const AdafactorSettings& settings);
/// Writes R and C (the running means of the squared gradients over rows and columns) into the new state of tile k, in the second of the
/// two passes of a step.
void put_factors(const AdafactorStep& step, i64 k, std::byte* state);

/// Updates the weight w from u. For one-dimensional parameters the second moment v is updated too.
template <class T>
void adafactor_update(const Arrays<T>& arrays, const T* direction, i64 elems, const Scalars<double>& scalars);

}  // namespace spillway::optim
