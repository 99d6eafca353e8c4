// Tensors as text, as PyTorch prints them: numbers with four digits behind the point (none where all are whole), or as powers of ten where
// they differ a thousandfold, of many elements the first and last three of each axis; then dtype and shape, and the device where it is not
// the CPU:
//   [[ 1.0000, -2.5000],
//    [ 0.0000,  4.0000]] f32 [2, 2]
#pragma once
#include <iosfwd>
#include <string>

#include "tensor/tensor.h"

namespace spillway {

/// Elements up to which all are shown.
constexpr i64 kShownWhole = 1000;

/// Of a GPU's tensor the stream in force must be that GPU's; it is waited for. Undefined: "undefined".
std::string to_string(const Tensor& t);
std::ostream& operator<<(std::ostream& out, const Tensor& t);

}  // namespace spillway
