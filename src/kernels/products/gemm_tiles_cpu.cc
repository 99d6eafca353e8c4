#include "kernels/products/gemm_tiles.h"

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace spillway::kernels::gemm::tiles {
namespace {

constexpr i64 kTileElems = kRows * kStep;  // the number of elements of one tile, which takes 1 KiB
constexpr i64 kTileBytesARow = 64;

// Asks Linux for permission to use the tile unit. Linux saves the unit's registers only for processes that have asked
// (Documentation/arch/x86/xstate.rst).
bool ask_for_permission() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24;
  if ((edx & kBf16) == 0 || (edx & kTile) == 0) return false;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

struct alignas(64) Configuration {
  u8 palette = 1, start_row = 0, reserved[14] = {};
  u16 row_bytes[16] = {};
  u8 rows[16] = {};
};

// Returns the configuration in which all eight tile registers have 16 rows of 64 bytes.
constexpr Configuration whole_tiles() {
  Configuration c;
  for (int i = 0; i < 8; ++i) {
    c.row_bytes[i] = kTileBytesARow;
    c.rows[i] = kRows;
  }
  return c;
}
constexpr Configuration kWholeTiles = whole_tiles();

Configuration few_tiles(Scope::Few few, i64 m) {
  Configuration c = whole_tiles();
  for (const int i : {kFewSums, kFewSums + 1, kFewA}) {
    if (few == Scope::Few::rows) c.rows[i] = static_cast<u8>(m);
    if (few == Scope::Few::columns) c.row_bytes[i] = static_cast<u16>(4 * m);
  }
  return c;
}

// gcc warns about undefined vectors in its own headers (gcc bug 105593), so these warnings are disabled.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,amx-tile,amx-bf16")

// Transposes 16 x 16 words: word i of row p becomes word p of row i.
void transpose_words(__m512i (&r)[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int g = 0; g < 16; g += 4) {
    r[g] = _mm512_unpacklo_epi64(t[g], t[g + 2]);
    r[g + 1] = _mm512_unpackhi_epi64(t[g], t[g + 2]);
    r[g + 2] = _mm512_unpacklo_epi64(t[g + 1], t[g + 3]);
    r[g + 3] = _mm512_unpackhi_epi64(t[g + 1], t[g + 3]);
  }
  // At this point lane l (128 bits) of r[4 g + c] holds rows 4 g .. 4 g + 3 of column 4 l + c of the words.
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512i low = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x44), low2 = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x44);
    const __m512i high = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xEE), high2 = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xEE);
    t[c] = _mm512_shuffle_i32x4(low, low2, 0x88);
    t[4 + c] = _mm512_shuffle_i32x4(low, low2, 0xDD);
    t[8 + c] = _mm512_shuffle_i32x4(high, high2, 0x88);
    t[12 + c] = _mm512_shuffle_i32x4(high, high2, 0xDD);
  }
  std::memcpy(&r, &t, sizeof r);
}

// Packs one tile of an operand whose outer dimension (m of A, n of B) is contiguous. Successive k are interleaved to pairs, then the words
// are transposed.
void pack_tile_contiguous(const BFloat16* from, i64 k_stride, i64 rows, i64 k, BFloat16* to) {
  const auto used = static_cast<__mmask16>((1u << rows) - 1);
  const auto row = [&](i64 p) {
    return p < k ? _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(used, from + p * k_stride)) : _mm512_setzero_si512();
  };
  __m512i words[16];
  for (i64 p = 0; p < 16; ++p) words[p] = _mm512_or_si512(row(2 * p), _mm512_slli_epi32(row(2 * p + 1), 16));
  transpose_words(words);
  for (i64 i = 0; i < kRows; ++i) _mm512_storeu_si512(to + i * kStep, words[i]);
}

template <int kPanels>
void sums_of(i64 k, const BFloat16* a, i64 a_panel_elems, const BFloat16* b, float* to, Lines& lines) {
  constexpr int kPairBytes = 4 * kColumns, kOutBytes = 4 * kColumns;
  // Tile registers 0-2 and 3-5 hold the sums of the two panels of A, register 6 holds A and register 7 holds B.
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  if constexpr (kPanels == 2) {
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
  }
  for (i64 p = 0; p < k; p += kStep) {
    lines.ask();
    const BFloat16 *second = a + a_panel_elems, *columns = b + p * kColumns;
    _tile_loadd(7, columns, kPairBytes);
    _tile_loadd(6, a, kTileBytesARow);
    _tile_dpbf16ps(0, 6, 7);
    if constexpr (kPanels == 2) {
      _tile_loadd(6, second, kTileBytesARow);
      _tile_dpbf16ps(3, 6, 7);
    }
    _tile_loadd(7, columns + 32, kPairBytes);
    _tile_loadd(6, a, kTileBytesARow);
    _tile_dpbf16ps(1, 6, 7);
    if constexpr (kPanels == 2) {
      _tile_loadd(6, second, kTileBytesARow);
      _tile_dpbf16ps(4, 6, 7);
    }
    _tile_loadd(7, columns + 64, kPairBytes);
    _tile_loadd(6, a, kTileBytesARow);
    _tile_dpbf16ps(2, 6, 7);
    if constexpr (kPanels == 2) {
      _tile_loadd(6, second, kTileBytesARow);
      _tile_dpbf16ps(5, 6, 7);
    }
    a += kTileElems;
  }
  _tile_stored(0, to, kOutBytes);
  _tile_stored(1, to + 16, kOutBytes);
  _tile_stored(2, to + 32, kOutBytes);
  if constexpr (kPanels == 2) {
    float* below = to + kRows * kColumns;
    _tile_stored(3, below, kOutBytes);
    _tile_stored(4, below + 16, kOutBytes);
    _tile_stored(5, below + 32, kOutBytes);
  }
}

void configure(const Configuration& c) {
  asm volatile("" : : "m"(c));  // tells gcc 12 that the instruction reads all of c; the intrinsic names only its first eight bytes
  _tile_loadconfig(&c);
}
void release() { _tile_release(); }

#pragma GCC pop_options

void pack_tile(const Operand<BFloat16>& from, i64 rows, i64 k, BFloat16* to) {
  if (rows < kRows || k < kStep) std::memset(static_cast<void*>(to), 0, kTileElems * sizeof(BFloat16));
  for (i64 i = 0; i < rows; ++i) {
    const BFloat16* row = from.data + i * from.outer_stride;
    if (from.k_stride == 1) {
      std::memcpy(to + i * kStep, row, static_cast<size_t>(k) * sizeof(BFloat16));
    } else {
      for (i64 p = 0; p < k; ++p) to[i * kStep + p] = row[p * from.k_stride];
    }
  }
}

}  // namespace

bool available() {
  static const bool yes = ask_for_permission();
  return yes;
}

void pack_a(Operand<BFloat16> from, i64 outer, i64 k, BFloat16* to) {
  const i64 depth = packed_depth<BFloat16>(k);
  for (i64 p = 0; p < k; p += kStep) {
    for (i64 i = 0; i < outer; i += kRows) {
      const i64 rows = std::min(kRows, outer - i);
      const Operand<BFloat16> part = from.from(i, p);
      BFloat16* tile = to + i * depth + p * kRows;
      if (from.outer_stride == 1 && from.k_stride != 1) {
        pack_tile_contiguous(part.data, part.k_stride, rows, std::min(kStep, k - p), tile);
      } else {
        pack_tile(part, rows, std::min(kStep, k - p), tile);
      }
    }
  }
}

Scope::Scope() { configure(kWholeTiles); }
Scope::Scope(Few few, i64 m) { configure(few_tiles(few, m)); }
Scope::~Scope() { release(); }

void sums(int panels, i64 k, const BFloat16* a, i64 a_panel_elems, const BFloat16* b, float* to, Lines& lines) {
  panels == 2 ? sums_of<2>(k, a, a_panel_elems, b, to, lines) : sums_of<1>(k, a, a_panel_elems, b, to, lines);
}

}  // namespace spillway::kernels::gemm::tiles
