// Rounds operands to fp8 and multiplies their codes with cuBLASLt. Its kernels for fp8 on Hopper take one layout only, in which the inner
// index is contiguous in both operands ("TN", cuBLAS library, section "cublasLtMatmul"). So an operand of the other layout is transposed
// while it is rounded. Nothing waits for the GPU: scales are computed and used there.
#include <type_traits>

#include "kernels/packs_cuda.h"
#include "kernels/products/fp8.h"
#include "kernels/products/matmul_plan_cuda.h"
#include "kernels/sums_cuda.h"
#include "tensor/dtype.h"

namespace spillway::kernels::cuda {
namespace {

constexpr int kPack = kPackOf<BFloat16>;
constexpr i64 kMostParts = 512;  // thread blocks that search for the largest magnitude; each finds that of its part

// The memory in which a GPU keeps facts about one operand.
struct Scratch {
  u32 largest[kMostParts];  // the largest magnitudes of the parts, as bits of fp32
  float inverse;            // one divided by the scale
};
static_assert(sizeof(Scratch) <= kFp8ScratchBytes);

Scratch* scratch_in(const Tensor& bytes) { return reinterpret_cast<Scratch*>(bytes.raw()); }

using Threads = BlockRows<kBlockThreads>;

// Bits of magnitudes are compared as integers, so that a NaN is larger than infinity.
__global__ void largest_of_parts(i64 elems, bool aligned, const BFloat16* x, Scratch* scratch) {
  u32 largest = 0;
  const i64 step = i64{gridDim.x} * blockDim.x * kPack;
  for (i64 i = (i64{blockIdx.x} * blockDim.x + threadIdx.x) * kPack; i < elems; i += step) {
    const auto pack = load_pack<kPack>(x + i, elems - i, aligned);
    for (int j = 0; j < kPack; ++j) largest = Larger()(largest, std::bit_cast<u32>(pack.at[j]) & 0x7fffffffu);
  }
  largest = Threads::fold(largest, Larger());
  if (threadIdx.x == 0) scratch->largest[blockIdx.x] = largest;
}

// Returns the exponent of the scale. The first thread block also stores one divided by the scale.
__device__ int exponent_of(Fp8 format, int parts, Scratch* scratch) {
  u32 largest = 0;
  for (int i = static_cast<int>(threadIdx.x); i < parts; i += kBlockThreads) largest = Larger()(largest, scratch->largest[i]);
  const int exponent = fp8_scale_exponent(format, Threads::fold(largest, Larger()));
  if (blockIdx.x == 0 && threadIdx.x == 0) scratch->inverse = power_of_two(-exponent);
  return exponent;
}

// Stores codes (To = u8), or the values that they stand for, in the order of x.
template <Fp8 kFormat, class To>
__global__ void round_in_order(i64 elems, int parts, bool aligned, const BFloat16* x, Scratch* scratch, To* to) {
  const int exponent = exponent_of(kFormat, parts, scratch);
  const float scale = power_of_two(exponent), inverse = power_of_two(-exponent);
  const i64 step = i64{gridDim.x} * blockDim.x * kPack;
  for (i64 i = (i64{blockIdx.x} * blockDim.x + threadIdx.x) * kPack; i < elems; i += step) {
    const auto pack = load_pack<kPack>(x + i, elems - i, aligned);
    Pack<Wide<To>, kPack> rounded;
    for (int j = 0; j < kPack; ++j) {
      const u8 code = fp8_code(kFormat, pack.at[j] * scale);
      if constexpr (std::is_same_v<To, u8>) {
        rounded.at[j] = code;
      } else {
        rounded.at[j] = fp8_value(kFormat, code) * inverse;
      }
    }
    store_pack(rounded, to + i, elems - i, aligned);
  }
}

constexpr int kTile = 32, kTileRows = kBlockThreads / kTile;

// Stores the codes of x[rows, columns], a contiguous matrix, as [columns, rows]. A thread block passes each tile through shared memory.
template <Fp8 kFormat>
__global__ void round_turned(i64 rows, i64 columns, int parts, const BFloat16* x, Scratch* scratch, u8* codes) {
  __shared__ u8 tile[kTile][kTile + 4];  // four more, so that the codes of a column lie in different banks
  const float scale = power_of_two(exponent_of(kFormat, parts, scratch));
  const i64 down = ceil_div(rows, i64{kTile}), tiles = down * ceil_div(columns, i64{kTile});
  const int across = static_cast<int>(threadIdx.x) % kTile, first = static_cast<int>(threadIdx.x) / kTile;
  for (i64 t = blockIdx.x; t < tiles; t += gridDim.x) {
    const i64 row = t % down * kTile, column = t / down * kTile;
    for (int y = first; y < kTile; y += kTileRows) {
      if (row + y < rows && column + across < columns)
        tile[y][across] = fp8_code(kFormat, widen(x[(row + y) * columns + column + across]) * scale);
    }
    __syncthreads();
    for (int y = first; y < kTile; y += kTileRows) {
      if (row + across < rows && column + y < columns) codes[(column + y) * rows + row + across] = tile[across][y];
    }
    __syncthreads();
  }
}

// Starts the search for the largest magnitude of x and returns the number of parts.
int find_largest(const Tensor& x, Scratch* scratch) {
  const i64 parts = std::clamp<i64>(ceil_div(x.elems(), i64{kBlockThreads} * kPack), 1, kMostParts);
  launch("fp8_largest", largest_of_parts, dim3(static_cast<unsigned>(parts)), dim3(kBlockThreads), x.elems(), is_aligned(x.raw(), 16),
         x.data<BFloat16>(), scratch);
  return static_cast<int>(parts);
}

template <class To>
void round_in_order(const Fp8Operand& in, To* to, Scratch* scratch) {
  const int parts = find_largest(in.x, scratch);
  const auto kernel = in.format == Fp8::e4m3 ? round_in_order<Fp8::e4m3, To> : round_in_order<Fp8::e5m2, To>;
  const bool aligned = is_aligned(in.x.raw(), 16) && is_aligned(to, 16);
  launch("fp8_round", kernel, blocks_for(in.x.elems(), kPack), dim3(kBlockThreads), in.x.elems(), parts, aligned, in.x.data<BFloat16>(),
         scratch, to);
}

// Writes the codes of an operand with `outer` rows or columns and k inner indices as [outer, k]. `in_order` says whether the operand lies
// in memory in that order.
void codes_of(const Fp8Operand& in, i64 outer, i64 k, bool in_order, u8* codes, Scratch* scratch) {
  if (in_order) return round_in_order(in, codes, scratch);
  const int parts = find_largest(in.x, scratch);
  const auto kernel = in.format == Fp8::e4m3 ? round_turned<Fp8::e4m3> : round_turned<Fp8::e5m2>;
  const i64 tiles = ceil_div(outer, i64{kTile}) * ceil_div(k, i64{kTile});
  launch("fp8_round", kernel, blocks_for(tiles * kBlockThreads), dim3(kBlockThreads), k, outer, parts, in.x.data<BFloat16>(), scratch,
         codes);
}

}  // namespace

void fp8_round(const Fp8Operand& in, const Tensor& rounded, const Tensor& scratch) {
  round_in_order(in, rounded.data<BFloat16>(), scratch_in(scratch));
}

void fp8_matmul(const Tensor& addend, const Fp8Operand& a, const Fp8Operand& b, const Tensor& bias, const Tensor& out,
                const Tensor& workspace) {
  const i64 m = out.size(0), n = out.size(1), k = a.x.size(1);
  u8* const a_codes = workspace.data<u8>();
  u8* const b_codes = a_codes + round_up(m * k, kAllocationAlignment);
  u8* const a_scratch = b_codes + round_up(n * k, kAllocationAlignment);
  u8* const b_scratch = a_scratch + kFp8ScratchBytes;
  u8* const rest = b_scratch + kFp8ScratchBytes;
  auto* const a_facts = reinterpret_cast<Scratch*>(a_scratch);
  auto* const b_facts = reinterpret_cast<Scratch*>(b_scratch);
  codes_of(a, m, k, a.x.is_contiguous(), a_codes, a_facts);
  codes_of(b, n, k, !b.x.is_contiguous(), b_codes, b_facts);
  // cuBLASLt is column-major, so its first operand is our second one (matmul_cuda.cu).
  constexpr i64 kLoad = 16;
  const i64 bias_alignment = bias.defined() ? kLoad : 0;
  MatmulKey key{Stream::current().device.index,
                DType::bf16,
                out.dtype(),
                {k, n, k, true, kLoad},
                {k, m, k, false, kLoad},
                {n, m, n, false, kLoad},
                bias_alignment,
                matmul_workspace_bytes(m, n, k, DType::bf16, out.dtype()),
                false};
  key.fp8 = {b.format, a.format};
  require(is_aligned(out.raw(), kLoad) && is_aligned(workspace.raw(), kAllocationAlignment) &&
              (!bias.defined() || is_aligned(bias.raw(), kLoad)) && (!addend.defined() || is_aligned(addend.raw(), kLoad)),
          "[fp8_matmul] expected matrices and a bias whose addresses are multiples of 16 bytes, and a workspace at a multiple of 256");
  const MatmulPlan& plan = matmul_plan(key);
  const BlasLtDesc desc = matmul_desc(key, bias.defined() ? bias.raw() : nullptr, nullptr, &b_facts->inverse, &a_facts->inverse);
  const float one = 1, kept = addend.defined() ? 1 : 0;
  blas_lt_check(blas_lt().matmul(plan.handle, desc.get(), &one, b_codes, plan.a.get(), a_codes, plan.b.get(), &kept,
                                 addend.defined() ? addend.raw() : out.raw(), plan.d.get(), out.raw(), plan.d.get(), &*plan.algo, rest,
                                 static_cast<size_t>(plan.workspace_bytes), Stream::current().queue),
                "cublasLtMatmul");
}

}  // namespace spillway::kernels::cuda
