// The parts of Muon's step that go element by element (Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024), in
// the order of torch.optim.Muon, each operation rounded by itself; g is the gradient * gradient_scale:
//   m = m + (g - m) * (1 - momentum)
//   u = m + (g - m) * (1 - momentum)            nesterov; else u = m
//   w = w * decay - step_size * o               o: u of the whole matrix orthogonalised (matrices/orthogonalize.h)
// A step goes over the matrix twice: direction_tile gathers u, then update_tile (tile.h) moves the weight along o and makes m anew.
// Thread-safe: pure functions.
#pragma once
#include "optim/rules/rules_paths.h"
#include "optim/state_format.h"

namespace spillway::optim {

/// u of the first `elems` of a tile, of a format of Rule::muon; T its arithmetic: double of f64 weights, else float.
template <class T>
void direction_tile(const StateFormat& format, const std::byte* gradient, const std::byte* state, i64 elems, const Scalars<double>& scalars,
                    bool nesterov, T* out);

/// m and w. The scalars are rounded to T once.
template <class T>
void muon_update(const Arrays<T>& arrays, const T* direction, i64 elems, const Scalars<double>& scalars);

}  // namespace spillway::optim
