// Reads tensors that a folder stores in MXFP4 (OCP Microscaling Formats 1.0), as gpt-oss does: of each 32 values in a row, a tensor
// `blocks` of bytes [..., 16] has the e2m1 codes, two in a byte with the earlier in the lower half, and a tensor `scales` of bytes has the
// exponent of a power of two with a bias of 127 (e8m0; 255 is NaN). Every value is exact in bf16, unless it is 2^128 or more, which becomes
// infinite.
#pragma once
#include "data/weights/weight_folder.h"

namespace spillway::data {

/// The number of values that share a scale.
constexpr i64 kMxfp4Block = 32;

/// Returns whether the folder's tensors `blocks` and `scales` are the MXFP4 form of a tensor of this shape.
bool is_mxfp4(const WeightFolder& folder, const std::string& blocks, const std::string& scales, const Shape& shape);

/// Writes values [begin, begin + out.size() / 2), in row-major order, as bf16.
void read_mxfp4(const WeightFolder& folder, const std::string& blocks, const std::string& scales, i64 begin, std::span<std::byte> out);

}  // namespace spillway::data
