// Products with few rows of bf16 pairs on the processor's tile unit (gemm_tiles.h). No Highway target includes the tile instructions, so
// they are inline assembly, which needs no functions compiled for another instruction set. B is read in place: columns with contiguous k
// already form a tile, and B^T A^T is bitwise equal to A B. This file is compiled for the Highway target AVX3 only (included after
// hwy/highway.h, never by a header).
#if defined(SPILLWAY_GEMM_FEW_ROWS_TILES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SPILLWAY_GEMM_FEW_ROWS_TILES_INL_H
#undef SPILLWAY_GEMM_FEW_ROWS_TILES_INL_H
#else
#define SPILLWAY_GEMM_FEW_ROWS_TILES_INL_H
#endif

#include "kernels/products/gemm_few_rows_inl.h"
#include "kernels/products/gemm_tiles.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace spillway::kernels::gemm {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr i64 kLineElems = kLine<BFloat16>, kTileRows = tiles::kRows, kTileK = 2 * kTileRows, kTileBytesARow = 64;

template <int kTile>
HWY_INLINE void load_tile(const void* from, i64 row_bytes) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(row_bytes), "i"(kTile) : "memory");
}
template <int kTile>
HWY_INLINE void store_tile(void* to, i64 row_bytes) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(row_bytes), "i"(kTile) : "memory");
}
template <int kTile>
HWY_INLINE void clear_tile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
template <int kSum, int kLeft, int kRight>
HWY_INLINE void dot_tiles() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kLeft), "i"(kRight));
}

// Computes one chunk of the sums for columns of B whose k are contiguous, as
// B^T A^T. The columns are the rows of a tile just as they lie in memory.
template <int kRows>
HWY_ATTR void chunk_transposed_tiles(const u32* a, const Operand<BFloat16>& b, i64 k, float* to) {
  const i64 whole = k / kTileK * kTileK, stride = b.outer_stride * 2;
  clear_tile<tiles::kFewSums>();
  for (i64 p = 0; p < whole; p += kTileK) {
    load_tile<tiles::kFewA>(a + p / 2 * kRows, 4 * kRows);
    load_tile<tiles::kFewB>(b.data + p, stride);
    dot_tiles<tiles::kFewSums, tiles::kFewB, tiles::kFewA>();
  }
  if (whole < k) {
    alignas(64) BFloat16 columns[kTileRows * kTileK] = {};
    u32 rows[kTileRows * kRows] = {};
    for (i64 j = 0; j < kTileRows; ++j) {
      std::memcpy(static_cast<void*>(columns + j * kTileK), b.data + j * b.outer_stride + whole, static_cast<size_t>(k - whole) * 2);
    }
    std::copy_n(a + whole / 2 * kRows, ceil_div(k - whole, i64{2}) * kRows, rows);
    load_tile<tiles::kFewA>(rows, 4 * kRows);
    load_tile<tiles::kFewB>(columns, kTileBytesARow);
    dot_tiles<tiles::kFewSums, tiles::kFewB, tiles::kFewA>();
  }
  float sums[kTileRows * kRows];
  store_tile<tiles::kFewSums>(sums, 4 * kRows);
  for (i64 r = 0; r < kRows; ++r) {
    for (i64 j = 0; j < kTileRows; ++j) to[r * kTileRows + j] = sums[j * kRows + r];
  }
}

// Multiplies A's tile with a cache line of B's pairs and adds the products to sums[kRows][columns].
HWY_INLINE void add_line(const V (&pairs)[2][kTileRows], i64 columns, float* sums) {
  for (int v = 0; v < 2; ++v) {
    load_tile<tiles::kFewSums>(sums + v * kLanes, 4 * columns);
    load_tile<tiles::kFewB>(pairs[v], kTileBytesARow);
    dot_tiles<tiles::kFewSums, tiles::kFewA, tiles::kFewB>();
    store_tile<tiles::kFewSums>(sums + v * kLanes, 4 * columns);
  }
}

// Prefetches the first two cache lines of a row of B. The processor prefetches the
// further lines by itself, and prefetching more of them by instructions is slower.
HWY_INLINE void ask_for_row(const BFloat16* row) {
  __builtin_prefetch(row, 0, 2);
  __builtin_prefetch(row + kLineElems, 0, 2);
}

// Computes one chunk of the sums for columns of B that are contiguous in memory and fill whole
// cache lines. Pairs are interleaved as they are loaded. Each line is multiplied while the next
// one is interleaved, because loading a tile right after storing it would wait for the stores.
template <int kRows>
HWY_ATTR void chunk_wide_tiles(const u32* a, const Operand<BFloat16>& b, i64 columns, i64 k, float* to) {
  alignas(64) V pairs[2][2][kTileRows];
  alignas(64) u32 rows[kRows][kTileRows];
  std::fill_n(to, kRows * columns, 0.0F);
  for (i64 first = 0; first < k; first += kTileK) {
    const i64 words = std::min(kTileRows, ceil_div(k - first, i64{2}));
    for (i64 i = 0; i < kTileRows; ++i) {
      for (auto& line : pairs) {
        if (i >= words) line[0][i] = line[1][i] = hn::Zero(Floats());
      }
      for (i64 r = 0; r < kRows; ++r) rows[r][i] = i < words ? a[(first / 2 + i) * kRows + r] : 0;
    }
    load_tile<tiles::kFewA>(rows, kTileBytesARow);
    const BFloat16* block = b.data + first * b.k_stride;
    for (i64 j = 0; j < columns; j += kLineElems) {
      auto& line = pairs[j / kLineElems % 2];
      for (i64 i = j / kLineElems; i < kTileK; i += columns / kLineElems) ask_for_row(block + (kTileK + i) * b.k_stride);
      for (i64 i = 0; i < words; ++i) {
        const BFloat16 *even = block + 2 * i * b.k_stride + j, *odd = even + b.k_stride;
        __builtin_prefetch(even + kLineElems, 0, 3);
        __builtin_prefetch(odd + kLineElems, 0, 3);
        V word[2];
        load_words<BFloat16>(even, b.k_stride, first + 2 * i + 2 <= k, word);
        line[0][i] = word[0];
        line[1][i] = word[1];
      }
      if (j > 0) add_line(pairs[(j / kLineElems + 1) % 2], columns, to + j - kLineElems);
    }
    add_line(pairs[(columns / kLineElems + 1) % 2], columns, to + columns - kLineElems);
  }
  put_in_order<BFloat16>(kRows * columns, to);
}
struct ByTiles {
  static constexpr i64 kStrip = kTileRows;
  struct Scope : tiles::Scope {
    Scope(bool transposed, i64 m) : tiles::Scope(transposed ? Few::columns : Few::rows, m) {}
  };
  template <int kRows, class T>
  static void transposed(const u32* a, const Operand<T>& b, i64 k, float* to) {
    chunk_transposed_tiles<kRows>(a, b, k, to);
  }
  template <int kRows, class T>
  static void wide(const u32* a, const Operand<T>& b, i64 columns, i64 k, float* to) {
    chunk_wide_tiles<kRows>(a, b, columns, k, to);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace spillway::kernels::gemm
HWY_AFTER_NAMESPACE();
#endif

#endif
