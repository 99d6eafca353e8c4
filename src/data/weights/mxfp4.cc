#include "data/weights/mxfp4.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace spillway::data {
namespace {

constexpr i64 kBlockBytes = kMxfp4Block / 2, kBlocksAtOnce = 256;
constexpr std::array<float, 16> kValues{0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0F, -0.5, -1, -1.5, -2, -3, -4, -6};

// Returns the 16 values of a scale.
std::array<BFloat16, 16> values_of(u8 scale) {
  constexpr int kBias = 127;
  constexpr u8 kNaN = 255;
  std::array<BFloat16, 16> values;
  for (size_t code = 0; code < values.size(); ++code) {
    const float value = scale == kNaN ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(kValues[code], scale - kBias);
    values[code] = narrow<BFloat16>(value);
  }
  return values;
}

Shape blocks_shape(const Shape& values, bool with_bytes) {
  std::vector<i64> extents(values.extents().begin(), values.extents().end());
  extents.back() /= kMxfp4Block;
  if (with_bytes) extents.push_back(kBlockBytes);
  return Shape(extents);
}

bool is_bytes(const TensorInfo* tensor, const Shape& shape) {
  return tensor != nullptr && tensor->foreign.empty() && tensor->dtype == DType::uint8 && tensor->shape == shape;
}

}  // namespace

bool is_mxfp4(const WeightFolder& folder, const std::string& blocks, const std::string& scales, const Shape& shape) {
  return shape.rank() > 0 && shape[shape.rank() - 1] % kMxfp4Block == 0 && is_bytes(folder.find(blocks), blocks_shape(shape, true)) &&
         is_bytes(folder.find(scales), blocks_shape(shape, false));
}

void read_mxfp4(const WeightFolder& folder, const std::string& blocks, const std::string& scales, i64 begin, std::span<std::byte> out) {
  std::array<std::byte, kBlocksAtOnce * kBlockBytes> codes;
  std::array<std::byte, kBlocksAtOnce> exponents;
  const i64 end = begin + std::ssize(out) / size_of(DType::bf16);
  std::byte* to = out.data();
  for (i64 at = begin; at < end;) {
    const i64 first = at / kMxfp4Block, count = std::min(kBlocksAtOnce, (end - 1) / kMxfp4Block + 1 - first);
    folder.read_as(blocks, first * kBlockBytes, DType::uint8, std::span(codes).first(static_cast<size_t>(count * kBlockBytes)));
    folder.read_as(scales, first, DType::uint8, std::span(exponents).first(static_cast<size_t>(count)));
    for (i64 block = first; block < first + count; ++block) {
      const std::array<BFloat16, 16> values = values_of(static_cast<u8>(exponents[static_cast<size_t>(block - first)]));
      for (; at < std::min(end, (block + 1) * kMxfp4Block); ++at) {
        const auto byte = static_cast<u8>(codes[static_cast<size_t>(at / 2 - first * kBlockBytes)]);
        const BFloat16 value = values[at % 2 == 0 ? byte & 15 : byte >> 4];
        std::memcpy(to, &value, sizeof(value));
        to += sizeof(value);
      }
    }
  }
}

}  // namespace spillway::data
