#include "kernels/dispatch.h"
#include "kernels/elements_cuda.h"
#include "kernels/products/quantized.h"

namespace spillway::kernels::cuda {
namespace {

// the number of values that a thread writes; all come from one half of a quantized block, whose codes take eight bytes
constexpr int kOfThread = 8;

struct Levels {
  float of[16];
};

// Returns the value that a code stands for before it is multiplied by its scale.
template <WeightFormat kFormat>
__device__ float level(u64 codes, int i, int half, const float* levels) {
  const u32 byte = static_cast<u32>(codes >> (8 * i)) & 0xffu;
  if constexpr (kFormat == WeightFormat::int8) return static_cast<float>(static_cast<i8>(byte));
  return levels[half != 0 ? byte >> 4 : byte & 15u];
}

template <WeightFormat kFormat, class T>
__global__ void scaled_levels(const std::byte* units, i64 elems, Levels table, bool packs, T* out) {
  __shared__ float levels[16];
  if (threadIdx.x < 16) levels[threadIdx.x] = table.of[threadIdx.x];
  __syncthreads();
  constexpr i64 kBytes = unit_bytes(kFormat), kScales = 2 * sizeof(float);
  const i64 pieces = ceil_div(elems, i64{kOfThread}), step = i64{gridDim.x} * blockDim.x;
  for (i64 p = i64{blockIdx.x} * blockDim.x + threadIdx.x; p < pieces; p += step) {
    const i64 first = p * kOfThread;
    const int within = static_cast<int>(first % kUnitValues), block = within / kScaledValues, at = within % kScaledValues;
    const std::byte* const unit = units + first / kUnitValues * kBytes;
    const float scale = reinterpret_cast<const float*>(unit)[block];
    constexpr int kHalf = kScaledValues / 2;
    const int half = at / kHalf;
    const i64 code = kFormat == WeightFormat::int8 ? block * kScaledValues + at : block * kHalf + at % kHalf;
    const u64 codes = *reinterpret_cast<const u64*>(unit + kScales + code);
    T values[kOfThread];
    for (int i = 0; i < kOfThread; ++i) values[i] = narrow<T>(static_cast<Wide<T>>(level<kFormat>(codes, i, half, levels) * scale));
    if (packs && first + kOfThread <= elems) {
      constexpr int kCount = 16 / sizeof(T) < kOfThread ? 16 / sizeof(T) : kOfThread;
      for (int i = 0; i < kOfThread; i += kCount) {
        Pack<T, kCount> pack;
        for (int j = 0; j < kCount; ++j) pack.at[j] = values[i + j];
        store_pack(pack, out + first + i);
      }
    } else {
      for (int i = 0; i < kOfThread && first + i < elems; ++i) out[first + i] = values[i];
    }
  }
}

}  // namespace

void dequantize(WeightFormat format, const Tensor& stored, const Tensor& out) {
  if (out.elems() == 0) return;
  for_dtype("dequantize", out.dtype(), [&]<class T>(T) {
    const i64 elems = out.elems();
    T* to = out.data<T>();
    if (format == WeightFormat::bf16) return map_on_gpu("dequantize", elems, Same(), to, reinterpret_cast<const BFloat16*>(stored.raw()));
    Levels table;
    for (size_t i = 0; i < kNf4Levels.size(); ++i) table.of[i] = kNf4Levels[i];
    const auto kernel = format == WeightFormat::int8 ? scaled_levels<WeightFormat::int8, T> : scaled_levels<WeightFormat::nf4, T>;
    launch("dequantize", kernel, blocks_for(elems, kOfThread), dim3(kBlockThreads), stored.raw(), elems, table, is_aligned(to, 16), to);
  });
}

}  // namespace spillway::kernels::cuda
