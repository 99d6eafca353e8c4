// Instructions of a whole warp, each lane for its own part of the result. Fragments as PTX ISA 9.0 lays them out: "Matrix Fragments for
// mma.m16n8k16 with floating point type", "ldmatrix".
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cuda_runtime.h"

namespace emulated_cuda {
namespace {

struct Fragments {
  unsigned a[4], b[2];
};
static_assert(sizeof(Fragments) <= kPublishedBytes);

template <class T>
T of_lane(const std::byte* published, int lane) {
  T got;
  std::memcpy(&got, published + static_cast<size_t>(lane) * kPublishedBytes, sizeof(T));
  return got;
}

// One of the two bf16 or f16 of a register.
float half(bool f16, unsigned pair, int which) {
  if (f16) return static_cast<float>(std::bit_cast<_Float16>(static_cast<unsigned short>(pair >> 16 * which)));
  return std::bit_cast<float>(which == 0 ? pair << 16 : pair & 0xffff0000u);
}

}  // namespace

void mma_m16n8k16(bool f16, float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  const Fragments mine{{a[0], a[1], a[2], a[3]}, {b0, b1}};
  const std::byte* all = publish(&mine, sizeof mine);
  const int row = lane() / 4, column = lane() % 4 * 2;
  for (int quad = 0; quad < 4; ++quad) {  // of lanes: the inner indices 2 quad, 2 quad + 1, 2 quad + 8, 2 quad + 9
    const auto left = of_lane<Fragments>(all, row * 4 + quad);
    for (int j = 0; j < 2; ++j) {
      const auto right = of_lane<Fragments>(all, (column + j) * 4 + quad);
      for (int high = 0; high < 2; ++high) {
        for (int which = 0; which < 2; ++which) {
          const float y = half(f16, right.b[high], which);
          c[j] += half(f16, left.a[2 * high], which) * y;
          c[j + 2] += half(f16, left.a[2 * high + 1], which) * y;
        }
      }
    }
  }
}

void ldmatrix_x4(unsigned at, bool transposed, unsigned (&to)[4]) {
  if (at % 16 != 0) {
    std::fprintf(stderr, "emulated CUDA: ldmatrix of a row that does not begin at a multiple of 16 bytes\n");
    std::abort();
  }
  const std::byte* all = publish(&at, sizeof at);
  const auto element = [&](int matrix, int row, int column) {
    unsigned short bits;
    std::memcpy(&bits, dynamic_shared() + of_lane<unsigned>(all, matrix * 8 + row) + 2 * column, sizeof bits);
    return unsigned{bits};
  };
  const int outer = lane() / 4, inner = lane() % 4 * 2;
  for (int i = 0; i < 4; ++i) {
    to[i] = transposed ? element(i, inner, outer) | element(i, inner + 1, outer) << 16
                       : element(i, outer, inner) | element(i, outer, inner + 1) << 16;
  }
}

}  // namespace emulated_cuda
