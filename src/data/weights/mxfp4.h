// Reads and encodes tensors that a folder stores in MXFP4 (OCP Microscaling Formats 1.0), as gpt-oss does: of each 32 values in a row, a
// tensor `blocks` of bytes [..., 16] has the e2m1 codes, two in a byte with the earlier in the lower half, and a tensor `scales` of bytes
// has the exponent of a power of two with a bias of 127 (e8m0; 255 is NaN). Every value is exact in bf16, unless it is 2^128 or more, which
// becomes infinite.
#pragma once
#include "data/weights/weight_folder.h"

namespace spillway::data {

/// The number of values that share a scale.
constexpr i64 kMxfp4Block = 32;

/// Returns whether the folder's tensors `blocks` and `scales` are the MXFP4 form of a tensor of this shape.
bool is_mxfp4(const WeightFolder& folder, const std::string& blocks, const std::string& scales, const Shape& shape);

/// Writes values [begin, begin + out.size() / 2), in row-major order, as bf16.
void read_mxfp4(const WeightFolder& folder, const std::string& blocks, const std::string& scales, i64 begin, std::span<std::byte> out);

/// Rounds values to MXFP4 as section 6.3 of the specification says. A block's scale is the power of two below its largest magnitude,
/// divided by 4; each quotient is rounded to the nearest of 0, 0.5, 1, 1.5, 2, 3, 4 and 6, ties to the code that is even, and those above 6
/// become
/// 6. A block with an infinite value or a NaN gets the scale NaN, a block of zeros the smallest scale. values.size() is a multiple of 32;
/// `blocks` receives half as many bytes, `scales` a byte for each 32 values. Values that were read from MXFP4 are encoded exactly, but to
/// other bytes if their scale was not the one that this rule gives.
void encode_mxfp4(std::span<const float> values, std::span<std::byte> blocks, std::span<std::byte> scales);

/// Returns the shape of the tensor of blocks, or of scales, of values of this shape.
Shape mxfp4_blocks_shape(const Shape& values);
Shape mxfp4_scales_shape(const Shape& values);

}  // namespace spillway::data
