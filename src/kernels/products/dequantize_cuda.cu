#include "kernels/dispatch.h"
#include "kernels/elements_cuda.h"
#include "kernels/products/quantized_cuda.h"

namespace spillway::kernels::cuda {
namespace {

template <WeightFormat kFormat, class T>
__global__ void scaled_levels(const std::byte* units, i64 elems, Nf4Levels table, bool packs, T* out) {
  __shared__ float levels[16];
  table.copy_to(levels);
  __syncthreads();
  const i64 pieces = ceil_div(elems, i64{kCodes}), step = i64{gridDim.x} * blockDim.x;
  for (i64 p = i64{blockIdx.x} * blockDim.x + threadIdx.x; p < pieces; p += step) {
    const i64 first = p * kCodes;
    const Codes<kFormat> codes(units, first);
    T values[kCodes];
    for (int i = 0; i < kCodes; ++i) values[i] = narrow<T>(static_cast<Wide<T>>(codes.level(i, levels) * codes.scale));
    if (packs && first + kCodes <= elems) {
      constexpr int kCount = 16 / sizeof(T) < kCodes ? 16 / sizeof(T) : kCodes;
      for (int i = 0; i < kCodes; i += kCount) {
        Pack<T, kCount> pack;
        for (int j = 0; j < kCount; ++j) pack.at[j] = values[i + j];
        store_pack(pack, out + first + i);
      }
    } else {
      for (int i = 0; i < kCodes && first + i < elems; ++i) out[first + i] = values[i];
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
    const Nf4Levels table;
    const auto kernel = format == WeightFormat::int8 ? scaled_levels<WeightFormat::int8, T> : scaled_levels<WeightFormat::nf4, T>;
    launch("dequantize", kernel, blocks_for(elems, kCodes), dim3(kBlockThreads), stored.raw(), elems, table, is_aligned(to, 16), to);
  });
}

}  // namespace spillway::kernels::cuda
