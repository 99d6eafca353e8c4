#include "base/error.h"
#include "device/launch_cuda.h"
#include "parallel/comm/ordered_sum_gpu.h"

namespace spillway::parallel {
namespace {

constexpr i64 kPackBytes = 16;

__device__ float4 add(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }
__device__ double2 add(double2 a, double2 b) { return {a.x + b.x, a.y + b.y}; }

template <class Pack>
__global__ void __launch_bounds__(kBlockThreads) sum_in_order(Pack* own, const Pack* others, i64 stride, int me, int ranks, i64 packs) {
  constexpr int kGroup = static_cast<int>(kSumGroupRanks);
  for (i64 p = i64{blockIdx.x} * blockDim.x + threadIdx.x; p < packs; p += i64{gridDim.x} * blockDim.x) {
    const auto of = [&](int r) { return r == me ? own[p] : others[r * stride + p]; };
    Pack total{};
    for (int begin = 0; begin < ranks; begin += kGroup) {
      Pack group = of(begin);
      for (int r = begin + 1; r < min(ranks, begin + kGroup); ++r) group = add(group, of(r));
      total = begin == 0 ? group : add(total, group);
    }
    own[p] = total;
  }
}

template <class Pack>
void sum(std::byte* own, const std::byte* others, i64 stride_bytes, int me, int ranks, i64 bytes) {
  launch("sum_in_order", sum_in_order<Pack>, blocks_for(bytes / kPackBytes), dim3(kBlockThreads), reinterpret_cast<Pack*>(own),
         reinterpret_cast<const Pack*>(others), stride_bytes / kPackBytes, me, ranks, bytes / kPackBytes);
}

bool is_whole(const std::byte* at) { return reinterpret_cast<unsigned long long>(at) % kPackBytes == 0; }

}  // namespace

void ordered_sum_on_gpu(std::byte* own, const std::byte* others, i64 stride_bytes, int me, int ranks, DType dtype, i64 bytes) {
  require(dtype == DType::f32 || dtype == DType::f64, "[ordered_sum] expected f32 or f64");
  require(is_whole(own) && is_whole(others) && stride_bytes % kPackBytes == 0 && bytes % kPackBytes == 0,
          "[ordered_sum] expected addresses and sizes that are multiples of 16 bytes");
  if (bytes == 0) return;
  dtype == DType::f32 ? sum<float4>(own, others, stride_bytes, me, ranks, bytes)
                      : sum<double2>(own, others, stride_bytes, me, ranks, bytes);
}

}  // namespace spillway::parallel
