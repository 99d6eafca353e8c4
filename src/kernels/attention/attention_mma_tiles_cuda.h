// Products of tiles on tensor cores, for attention. Tiles are rows of kWidth halves (H: bf16 or f16) in shared memory, in words of 16
// bytes; what a warp multiplies is kept as the fragments of mma.m16n8k16, in registers: a result [kM * 16, kN * 8] as float[kM][kN][4],
// which rounded to H is the left operand of the next product as it stands. Included by kernels/*_cuda.cu alone.
#pragma once
#include "device/launch_cuda.h"
#include "kernels/mma_cuda.h"
#include "kernels/sums_cuda.h"

namespace spillway::kernels::attention_mma {

constexpr float kLog2e = 1.4426950408889634f;

__device__ inline int lane() { return static_cast<int>(threadIdx.x) % kWarpThreads; }
__device__ inline int warp() { return static_cast<int>(threadIdx.x) / kWarpThreads; }
/// Within the 16 x 8 of a fragment: the first of this lane's two rows (the other is 8 on) and of its two columns.
__device__ inline int fragment_row() { return lane() / 4; }
__device__ inline int fragment_column() { return lane() % 4 * 2; }

/// Word w of row r lies at w ^ (r % 8): neither eight rows of one word nor the words of one row meet in a bank. Adding 8 n to the row adds
/// 8 n kPitch to the address, and adding 2 n to words 0 and 1 is ^ 32 n, for tiles begin at multiples of kPitch.
template <int kWidth>
struct Layout {
  static constexpr int kWords = kWidth <= 64 ? 8 : 16, kPitch = kWords * 16;
  static_assert(kWidth % 16 == 0 && kWidth <= 128);
  __device__ static u32 at(int row, int word) { return static_cast<u32>(row * kPitch + ((word ^ (row & 7)) << 4)); }
};

/// Rows of a head on their way to tiles, by all kThreads threads of a block; what is not in the head, and columns from its width on, is
/// zero.
template <class H, int kWidth, int kThreads>
class Copier {
 public:
  __device__ Copier(const attention_problem::View<const H>& view, i64 b, i64 h, int begin)
      : from_(view.at(b, h, begin + row()) + word() * 8) {}

  /// Begins to copy the next kRows rows, of which `rows` (perhaps more) are there; the view as before. Those that do not begin at multiples
  /// of 16 bytes are copied element by element: this changes no number.
  template <int kRows>
  __device__ void copy(const attention_problem::View<const H>& view, int rows, i64 width, u32 tile) {
    static_assert(kRows % kAtOnce == 0);
    if (word() * 8 >= kWidth) return;
    const bool padding = word() * 8 >= static_cast<int>(width);
    u32 to = tile + L::at(row(), word());
    if (view.in_words && kRows <= rows) {
      SPILLWAY_UNROLL
      for (int i = 0; i < kRows; i += kAtOnce, from_ += kAtOnce * view.row) mma::copy_word(to + i * L::kPitch, from_, !padding);
      return;
    }
    SPILLWAY_NO_UNROLL
    for (int r = row(); r < kRows; r += kAtOnce, from_ += kAtOnce * view.row, to += kAtOnce * L::kPitch) {
      const bool there = !padding && r < rows;
      if (view.in_words) {
        mma::copy_word(to, from_, there);
      } else {
        mma::store_shared(to, there ? one_by_one(from_) : uint4{});
      }
    }
  }

 private:
  using L = Layout<kWidth>;
  static constexpr int kAtOnce = kThreads / L::kWords;
  static_assert(kAtOnce % 8 == 0);
  __device__ static int word() { return static_cast<int>(threadIdx.x) % L::kWords; }
  __device__ static int row() { return static_cast<int>(threadIdx.x) / L::kWords; }
  __device__ static uint4 one_by_one(const H* from) {
    Pack<H, 8> pack;
    for (int j = 0; j < 8; ++j) pack.at[j] = from[j];
    return std::bit_cast<uint4>(pack);
  }

  const H* from_;  // this thread's word of the next rows' row row()
};

template <int kM, int kN>
__device__ void clear(float (&x)[kM][kN][4]) {
  SPILLWAY_UNROLL
  for (int m = 0; m < kM; ++m) {
    SPILLWAY_UNROLL
    for (int n = 0; n < kN; ++n) {
      SPILLWAY_UNROLL
      for (int i = 0; i < 4; ++i) x[m][n][i] = 0;
    }
  }
}

/// x[i][j] = the product of row i of tile a and row j of tile b over the width.
template <class H, int kWidth, int kM, int kN>
__device__ void multiply_rows(u32 a, u32 b, float (&x)[kM][kN][4]) {
  using L = Layout<kWidth>;
  a += L::at(lane() % 16, lane() / 16), b += L::at(lane() / 16 * 8 + lane() % 8, lane() / 8 % 2);
  clear(x);
  SPILLWAY_UNROLL
  for (int k = 0; k < kWidth / 16; ++k) {
    u32 left[kM][4];
    SPILLWAY_UNROLL
    for (int m = 0; m < kM; ++m) mma::load_matrices((a ^ (k * 32)) + m * 16 * L::kPitch, left[m]);
    SPILLWAY_UNROLL
    for (int n = 0; n < kN; n += 2) {
      u32 right[4];
      mma::load_matrices((b ^ (k * 32)) + n * 8 * L::kPitch, right);
      SPILLWAY_UNROLL
      for (int m = 0; m < kM; ++m) {
        mma::multiply_add<H>(x[m][n], left[m], right[0], right[1]);
        mma::multiply_add<H>(x[m][n + 1], left[m], right[2], right[3]);
      }
    }
  }
}

/// sum[i][c] += the sum of weights[i][j], rounded to H, times element c of row j of tile b.
template <class H, int kWidth, int kM, int kN>
__device__ void add_weighted(const float (&weights)[kM][kN][4], u32 b, float (&sum)[kM][kWidth / 8][4]) {
  using L = Layout<kWidth>;
  b += L::at(lane() % 16, lane() / 16);
  SPILLWAY_UNROLL
  for (int k = 0; k < kN; k += 2) {
    u32 left[kM][4];
    SPILLWAY_UNROLL
    for (int m = 0; m < kM; ++m) {
      SPILLWAY_UNROLL
      for (int i = 0; i < 4; ++i) left[m][i] = mma::pack_halves<H>(weights[m][k + i / 2][i % 2 * 2], weights[m][k + i / 2][i % 2 * 2 + 1]);
    }
    SPILLWAY_UNROLL
    for (int n = 0; n < kWidth / 8; n += 2) {
      u32 right[4];
      mma::load_transposed((b ^ (n * 16)) + k * 8 * L::kPitch, right);
      SPILLWAY_UNROLL
      for (int m = 0; m < kM; ++m) {
        mma::multiply_add<H>(sum[m][n], left[m], right[0], right[1]);
        mma::multiply_add<H>(sum[m][n + 1], left[m], right[2], right[3]);
      }
    }
  }
}

/// A warp's sums times factor(m, whether the second row), rounded, into `there` rows from `to` on, by way of the tile `own`, which is the
/// warp's alone.
template <int kWidth, class H, int kM, class F>
__device__ void store_rows(const float (&sum)[kM][kWidth / 8][4], F factor, u32 own, H* to, i64 stride, i64 there, i64 width,
                           bool in_words) {
  using L = Layout<kWidth>;
  __syncwarp();
  SPILLWAY_UNROLL
  for (int m = 0; m < kM; ++m) {
    SPILLWAY_UNROLL
    for (int second = 0; second < 2; ++second) {
      const float by = factor(m, second);
      SPILLWAY_UNROLL
      for (int n = 0; n < kWidth / 8; ++n) {
        const u32 pair = mma::pack_halves<H>(sum[m][n][2 * second] * by, sum[m][n][2 * second + 1] * by);
        mma::store_shared(own + L::at(m * 16 + second * 8 + fragment_row(), n) + fragment_column() * 2, pair);
      }
    }
  }
  __syncwarp();
  constexpr int kRowsAtOnce = kWarpThreads / L::kWords;
  const int word = lane() % L::kWords;
  if (word * 8 >= width) return;
  for (int row = lane() / L::kWords; row < kM * 16 && row < there; row += kRowsAtOnce) {
    const auto all = mma::load_shared<uint4>(own + L::at(row, word));
    H* at = to + row * stride + word * 8;
    if (in_words) {
      *reinterpret_cast<uint4*>(at) = all;
    } else {
      const auto pack = std::bit_cast<Pack<H, 8>>(all);
      for (int j = 0; j < 8; ++j) at[j] = pack.at[j];
    }
  }
}

/// f(std::integral_constant<int, kWidth>, std::bool_constant<kDrops>): kernels for the next larger width.
template <class F>
void for_kernel(i64 width, bool drops, F f) {
  const auto with = [&](auto padded) { drops ? f(padded, std::true_type()) : f(padded, std::false_type()); };
  if (width <= 64) return with(std::integral_constant<int, 64>());
  if (width <= 96) return with(std::integral_constant<int, 96>());
  with(std::integral_constant<int, 128>());
}

template <class F>
void launch_blocks(void (*kernel)(F), i64 blocks, int threads, int shared_bytes, const F& f) {
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), "attention");
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks)), config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes), config.stream = Stream::current().queue;
  cuda_check(cudaLaunchKernelEx(&config, kernel, f), "attention");
}

}  // namespace spillway::kernels::attention_mma
