// Emulates instructions of a whole warp, in which each lane computes its own part of the result. Fragments
// are laid out as in PTX ISA 9.0: "Matrix Fragments for mma.m16n8k16 with floating point type", "ldmatrix".
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <cuda_runtime.h>

namespace emulated_cuda {
namespace {

// The fragments of one lane as floats: two elements for each register.
struct Fragments {
  float a[8], b[4];
};
static_assert(sizeof(Fragments) <= kPublishedBytes);

template <class T>
const T& of_lane(const std::byte* published, int lane) {
  return *reinterpret_cast<const T*>(published + static_cast<size_t>(lane) * kPublishedBytes);
}

// Returns number 0 or 1 of the two bf16 or f16 numbers in a register.
float half(bool f16, unsigned pair, int which) {
  if (f16) return static_cast<float>(std::bit_cast<_Float16>(static_cast<unsigned short>(pair >> 16 * which)));
  return std::bit_cast<float>(which == 0 ? pair << 16 : pair & 0xffff0000u);
}

// Adds c and eight exact products as tensor cores do: each term is truncated below the 24th bit of the largest term, and
// the sum is truncated toward zero. Fasi, Higham, Mikaitis, Pranesh: Numerical behavior of NVIDIA tensor cores (2021).
float cut_sum(float c, const double (&products)[8]) {
  double plain = c, largest = std::abs(double{c});
  for (const double product : products) {
    plain += product;
    largest = std::max(largest, std::abs(product));
  }
  if (!std::isfinite(plain) || largest == 0) return static_cast<float>(plain);
  // The factor is 2^24 over the power of two not above the largest term, computed from its bits, since it is a normal double.
  const std::uint64_t exponent = std::bit_cast<std::uint64_t>(largest) >> 52;
  const auto scale = std::bit_cast<double>((2 * 1023 + 24 - exponent) << 52);
  auto units = static_cast<std::int64_t>(c * scale);
  for (const double product : products) units += static_cast<std::int64_t>(product * scale);
  const double sum = static_cast<double>(units) / scale;
  const auto near = static_cast<float>(sum);
  return std::abs(double{near}) > std::abs(sum) ? std::nextafter(near, 0.0f) : near;
}

}  // namespace

float ex2_approx(float x) {
  const float y = std::exp2(x);
  if (!std::isnormal(y)) return y > 1 || std::isnan(y) ? y : 0.0f;
  const int off = static_cast<int>(std::bit_cast<unsigned>(x) * 2654435761u >> 16) % 5 - 2;
  const auto near = std::bit_cast<float>(std::bit_cast<unsigned>(y) + static_cast<unsigned>(x == 0 ? 0 : off));
  return std::isnormal(near) ? near : y;
}

void mma_m16n8k16(bool f16, float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  Fragments mine;
  for (int which = 0; which < 2; ++which) {
    for (int i = 0; i < 4; ++i) mine.a[2 * i + which] = half(f16, a[i], which);
    mine.b[which] = half(f16, b0, which);
    mine.b[2 + which] = half(f16, b1, which);
  }
  const std::byte* all = publish(&mine, sizeof mine);
  const int row = lane() / 4, column = lane() % 4 * 2;
  for (int half_of = 0; half_of < 2; ++half_of) {  // the hardware adds in two steps: inner indices 0 to 7, then 8 to 15
    for (int j = 0; j < 2; ++j) {
      double low[8], high[8];
      for (int quad = 0; quad < 4; ++quad) {
        const auto& left = of_lane<Fragments>(all, row * 4 + quad);
        const auto& right = of_lane<Fragments>(all, (column + j) * 4 + quad);
        for (int which = 0; which < 2; ++which) {
          const double y = right.b[2 * half_of + which];
          low[quad * 2 + which] = left.a[4 * half_of + which] * y;
          high[quad * 2 + which] = left.a[4 * half_of + 2 + which] * y;
        }
      }
      c[j] = cut_sum(c[j], low);
      c[j + 2] = cut_sum(c[j + 2], high);
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
