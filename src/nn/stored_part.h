// Defines StoredPart, which says that model folders store a parameter as a part of a larger tensor, such as the weight of one expert
// within the stacked weights of all experts of a layer, or the gate within a fused projection.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "tensor/shape.h"

namespace spillway::nn {

struct StoredPart {
  struct Axis {
    i64 extent = 0, stride = 0;  // strides are positive and count elements of the whole tensor
  };
  std::string tensor;  // the Hugging Face name of the whole tensor
  Shape shape;         // the shape of the whole tensor
  i64 first = 0;       // the index of the parameter's first element in the whole tensor, in row-major order
  /// The parameter's elements in row-major order, as indices (i_0, i_1, …) over these extents, outermost first. Element (i_0, i_1, …) is
  /// element first + i_0 stride_0 + i_1 stride_1 + … of the whole tensor. The extents need not be those of the parameter's shape: only
  /// their product is the same. Row r of a [R, C] matrix in an [I, O] tensor with O = 2 R, gate and up in turn, is {{R, 2}, {C, 2 R}}.
  std::vector<Axis> axes;
  // If it is not empty, folders store the whole tensor in MXFP4 (data/weights/mxfp4.h): `tensor` is the name of its blocks and `scales`
  // that of its scales. `shape` is that of the values, whose last extent is a multiple of 32.
  std::string scales = {};
};

/// Returns the part that is the whole tensor.
inline StoredPart whole_tensor(std::string name, const Shape& shape) { return {std::move(name), shape, 0, {{shape.elems(), 1}}}; }

}  // namespace spillway::nn
