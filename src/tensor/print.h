// Formats tensors as text the way PyTorch does. Numbers have four decimals (none if all are whole), or are written as powers of ten if they
// differ more than a thousandfold. If there are many elements, only the first and last three of each axis are shown. Dtype and shape
// follow, and the device if it is not the CPU:
//   [[ 1.0000, -2.5000],
//    [ 0.0000,  4.0000]] f32 [2, 2]
#pragma once
#include <iosfwd>
#include <string>

#include "tensor/tensor.h"

namespace spillway {

/// The largest number of elements that is printed in full.
constexpr i64 kShownWhole = 1000;

/// Returns the tensor as text; "undefined" for an undefined one. For a GPU tensor the current stream must belong to that GPU; the call
/// waits for it.
std::string to_string(const Tensor& t);
std::ostream& operator<<(std::ostream& out, const Tensor& t);

}  // namespace spillway
