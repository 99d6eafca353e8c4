// Compares the fragments of the emulated tensor cores, lane by lane, with those that CuTe's traits of the same instructions define: which
// element of a, b and c each register of a lane holds, and where ldmatrix reads it from. Exits with status 1 if one differs.
#include <cstdio>
#include <cstring>
#include <cute/atom/copy_traits_sm75.hpp>
#include <cute/atom/mma_traits_sm80.hpp>
#include <cute/tensor.hpp>
#include <random>

#include "tests/peers/fragments.h"

namespace spillway::peers {
namespace {

unsigned half_bits(bool f16, int x) {
  if (f16) return cutlass::half_t(static_cast<float>(x)).raw();
  return cutlass::bfloat16_t(static_cast<float>(x)).raw();
}

// Compares products of random operands. The operands are small integers, so every sum of products is exact, in any order and under any
// rounding.
template <class Instruction>
bool equal_products(const char* name, bool f16) {
  using Traits = cute::MMA_Traits<Instruction>;
  constexpr int kTrials = 50;
  std::mt19937 random(1);
  std::uniform_int_distribution<int> draw(-8, 8);
  for (int trial = 0; trial < kTrials; ++trial) {
    int a[16][16], b[8][16];
    for (auto& row : a) {
      for (int& x : row) x = draw(random);
    }
    for (auto& row : b) {
      for (int& x : row) x = draw(random);
    }
    Operands operands = {};
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int v = 0; v < 8; ++v) {
        const int i = static_cast<int>(typename Traits::ALayout{}(lane, v));
        operands[lane][v / 2] |= half_bits(f16, a[i % 16][i / 16]) << 16 * (v % 2);
      }
      for (int v = 0; v < 4; ++v) {
        const int i = static_cast<int>(typename Traits::BLayout{}(lane, v));
        operands[lane][4 + v / 2] |= half_bits(f16, b[i % 8][i / 8]) << 16 * (v % 2);
      }
    }
    Products got = {};
    multiply(f16, operands, got);
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int v = 0; v < 4; ++v) {
        const int i = static_cast<int>(typename Traits::CLayout{}(lane, v)), m = i % 16, n = i / 16;
        int want = 0;
        for (int k = 0; k < 16; ++k) want += a[m][k] * b[n][k];
        if (got[lane][v] == static_cast<float>(want)) continue;
        std::printf("%s: unequal: lane %d c[%d]: %g, CuTe has %d of row %d, column %d there\n", name, lane, v,
                    static_cast<double>(got[lane][v]), want, m, n);
        return false;
      }
    }
  }
  std::printf("%s: equal (%d products, all lanes)\n", name, kTrials);
  return true;
}

template <class Instruction>
bool equal_loads(const char* name, bool transposed) {
  using Traits = cute::Copy_Traits<Instruction>;
  constexpr int kRowBits = 128, kRowBytes = kRowBits / 8;
  unsigned char shared[kSharedBytes];
  for (int i = 0; i < kSharedBytes / 2; ++i) {
    const auto x = static_cast<unsigned short>(i * 31 + 7);
    std::memcpy(shared + 2 * i, &x, sizeof x);
  }
  Rows at;
  for (int lane = 0; lane < kLanes; ++lane) at[lane] = static_cast<unsigned>(lane * 37 % 128 * kRowBytes);
  Loaded got = {};
  load(transposed, at, shared, got);
  // for each bit of the matrices: the lane whose address gives the bit's row, and the bit's position in that row
  int source[kLanes * kRowBits];
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int v = 0; v < kRowBits; ++v) source[static_cast<int>(typename Traits::SrcLayout{}(lane, v))] = lane * kRowBits + v;
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int e = 0; e < 8; ++e) {
      const int from = source[static_cast<int>(typename Traits::DstLayout{}(lane, e * 16))];
      unsigned short want;
      std::memcpy(&want, shared + at[from / kRowBits] + from % kRowBits / 8, sizeof want);
      const auto is = static_cast<unsigned short>(got[lane][e / 2] >> 16 * (e % 2));
      if (is == want) continue;
      std::printf("%s: unequal: lane %d element %d: %u, CuTe has %u there\n", name, lane, e, is, want);
      return false;
    }
  }
  std::printf("%s: equal (all lanes, 8 elements each)\n", name);
  return true;
}

}  // namespace
}  // namespace spillway::peers

int main() {
  using namespace spillway::peers;
  bool equal = equal_products<cute::SM80_16x8x16_F32BF16BF16F32_TN>("mma.m16n8k16 bf16", false);
  equal &= equal_products<cute::SM80_16x8x16_F32F16F16F32_TN>("mma.m16n8k16 f16", true);
  equal &= equal_loads<cute::SM75_U32x4_LDSM_N>("ldmatrix.x4", false);
  equal &= equal_loads<cute::SM75_U16x8_LDSM_T>("ldmatrix.x4.trans", true);
  return equal ? 0 : 1;
}
