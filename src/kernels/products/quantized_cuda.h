// Reads quantized weights on a GPU, eight values at a time. Only *_cuda.* files include this header.
#pragma once
#include <cuda_runtime.h>

#include "kernels/products/quantized.h"

namespace spillway::kernels {

/// kNf4Levels as a parameter of a kernel.
struct Nf4Levels {
  float of[16];
  Nf4Levels() {
    for (size_t i = 0; i < kNf4Levels.size(); ++i) of[i] = kNf4Levels[i];
  }
  /// Copies the levels to shared memory, where threads may read any of them after the thread block has been synchronised. Indices that are
  /// known at compile time keep a kernel's parameter out of local memory.
  __device__ void copy_to(float* shared) const {
    for (unsigned i = 0; i < 16; ++i) {
      if (threadIdx.x == i) shared[i] = of[i];
    }
  }
};

/// The number of values that Codes holds.
constexpr int kCodes = 8;

/// Eight adjacent values of a weight in int8 or nf4. They share a scale, and their codes take eight bytes.
template <WeightFormat kFormat>
struct Codes {
  u64 bits = 0;  // code i is in byte i; of nf4 it is the low half of the byte
  float scale = 0;

  Codes() = default;
  /// Loads the values from number `first` on, a multiple of eight. `units` is a multiple of 8.
  __device__ Codes(const std::byte* units, i64 first) {
    const std::byte* const unit = units + first / kUnitValues * unit_bytes(kFormat);
    const int within = static_cast<int>(first % kUnitValues), block = within / kScaledValues, at = within % kScaledValues;
    constexpr int kScales = 2 * sizeof(float), kHalf = kScaledValues / 2;
    scale = reinterpret_cast<const float*>(unit)[block];
    const auto* const codes = reinterpret_cast<const u64*>(unit + kScales);
    if constexpr (kFormat == WeightFormat::int8) {
      bits = codes[within / kCodes];
    } else {
      bits = codes[(block * kHalf + at % kHalf) / kCodes] >> (at / kHalf * 4);
    }
  }
  /// Returns code i: from -127 to 127, or, of nf4, the number of the level.
  __device__ int code(int i) const {
    const u32 byte = static_cast<u32>(bits >> (8 * i)) & 0xffu;
    return kFormat == WeightFormat::int8 ? static_cast<i8>(byte) : static_cast<int>(byte & 15u);
  }
  /// Returns what code i stands for, which times the scale is the value.
  __device__ float level(int i, const float* levels) const {
    if constexpr (kFormat == WeightFormat::int8) return static_cast<float>(code(i));
    return levels[code(i)];
  }
};

}  // namespace spillway::kernels
