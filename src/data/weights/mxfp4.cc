#include "data/weights/mxfp4.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"

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

// Returns the code of the nearest e2m1 number of |x|, ties to the even code.
u8 code_of(float x) {
  constexpr std::array<float, 7> kMiddles{0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5};  // between code i and code i + 1
  const float magnitude = std::fabs(x);
  u8 code = 0;
  for (; code < kMiddles.size(); ++code) {
    const float middle = kMiddles[code];
    if (magnitude < middle || (magnitude == middle && code % 2 == 0)) break;
  }
  return std::signbit(x) ? code | 8 : code;
}

// Returns the byte of a block's scale.
u8 scale_of(std::span<const float> block) {
  constexpr int kBias = 127, kLargestExponent = 2;  // 6 is 1.5 * 2^2
  constexpr u8 kNaN = 255;
  float largest = 0;
  for (const float x : block) {
    if (!std::isfinite(x)) return kNaN;
    largest = std::max(largest, std::fabs(x));
  }
  return largest == 0 ? u8{0} : static_cast<u8>(std::max(0, std::ilogb(largest) - kLargestExponent + kBias));
}

bool is_bytes(const TensorInfo* tensor, const Shape& shape) {
  return tensor != nullptr && tensor->foreign.empty() && tensor->dtype == DType::uint8 && tensor->shape == shape;
}

}  // namespace

Shape mxfp4_scales_shape(const Shape& values) {
  std::vector<i64> extents(values.extents().begin(), values.extents().end());
  extents.back() /= kMxfp4Block;
  return Shape(extents);
}

Shape mxfp4_blocks_shape(const Shape& values) {
  std::vector<i64> extents(values.extents().begin(), values.extents().end());
  extents.back() /= kMxfp4Block;
  extents.push_back(kBlockBytes);
  return Shape(extents);
}

bool is_mxfp4(const WeightFolder& folder, const std::string& blocks, const std::string& scales, const Shape& shape) {
  return shape.rank() > 0 && shape[shape.rank() - 1] % kMxfp4Block == 0 && is_bytes(folder.find(blocks), mxfp4_blocks_shape(shape)) &&
         is_bytes(folder.find(scales), mxfp4_scales_shape(shape));
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

void encode_mxfp4(std::span<const float> values, std::span<std::byte> blocks, std::span<std::byte> scales) {
  require(std::ssize(values) % kMxfp4Block == 0 && std::ssize(blocks) == std::ssize(values) / 2 &&
              std::ssize(scales) == std::ssize(values) / kMxfp4Block,
          "[mxfp4] expected values in blocks of 32, half as many bytes of blocks, and a byte of scale for each block");
  for (size_t block = 0; block < scales.size(); ++block) {
    const std::span<const float> from = values.subspan(block * kMxfp4Block, kMxfp4Block);
    const u8 scale = scale_of(from);
    scales[block] = static_cast<std::byte>(scale);
    for (size_t i = 0; i < kBlockBytes; ++i) {
      // Division by the scale is exact: it is a power of two, and quotients below 2^-126 round to 0 all the same.
      const auto code = [&](float x) { return scale == 255 ? u8{0} : code_of(std::ldexp(x, 127 - scale)); };
      blocks[block * kBlockBytes + i] = static_cast<std::byte>(code(from[2 * i]) | code(from[2 * i + 1]) << 4);
    }
  }
}

}  // namespace spillway::data
