// The element-wise parts of Muon's step (Jordan et al., "Muon: An optimizer for hidden layers in neural networks",
// 2024), in the order of torch.optim.Muon, each operation rounded separately; g is the gradient * gradient_scale:
//   m = m + (g - m) * (1 - momentum)
//   u = m + (g - m) * (1 - momentum)            nesterov; else u = m
//   w = w * decay - step_size * o               o: u of the whole matrix orthogonalised (matrices/orthogonalize.h)
// A step passes over the matrix twice: direction_tile gathers u, then update_tile (tile.h) moves the weight along
// o and computes the new m. Thread-safe: pure functions.
#pragma once
#include "optim/rules/rules_paths.h"
#include "optim/state_format.h"

namespace spillway::optim {

/// Computes the direction u of the formulas above for the first `elems` elements of a tile with a
/// format of Rule::muon. T is the type of the arithmetic: double for f64 weights, float for all others.
template <class T>
void direction_tile(const StateFormat& format, const std::byte* gradient, const std::byte* state, i64 elems, const Scalars<double>& scalars,
                    bool nesterov, T* out);

/// Updates m and w of Muon's formulas. The scalars are rounded to T once.
template <class T>
void muon_update(const Arrays<T>& arrays, const T* direction, i64 elems, const Scalars<double>& scalars);

}  // namespace spillway::optim
