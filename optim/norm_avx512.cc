// Adds the squares of whole rows with AVX-512 (norm_paths.h). The 64 partial sums (lanes) in fp64 take eight vector registers.
#if defined(__x86_64__)
#include <immintrin.h>

#include "optim/norm_paths.h"

#define SPILLWAY_AVX512 __attribute__((target("avx512f")))

namespace spillway::optim {
namespace {

constexpr int kVectors = 8;
constexpr i64 kWidth = 8;

// Converts eight elements to fp64. The zero-masking intrinsic with a full
// mask is used because g++ 12 emits a false warning for the plain one.
SPILLWAY_AVX512 inline __m512d widen(const float* at) { return _mm512_maskz_cvtps_pd(0xff, _mm256_loadu_ps(at)); }
SPILLWAY_AVX512 inline __m512d widen(const double* at) { return _mm512_loadu_pd(at); }
SPILLWAY_AVX512 inline __m512d widen(const BFloat16* at) {
  const __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  return _mm512_maskz_cvtps_pd(0xff, _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16)));
}

template <class T>
SPILLWAY_AVX512 void add_rows(const T* at, i64 rows, double* lanes) {
  __m512d sum[kVectors];
  for (int k = 0; k < kVectors; ++k) sum[k] = _mm512_loadu_pd(lanes + k * kWidth);
  for (i64 row = 0; row < rows; ++row, at += kNormLanes) {
    for (int k = 0; k < kVectors; ++k) {
      const __m512d x = widen(at + k * kWidth);
      sum[k] = _mm512_add_pd(sum[k], _mm512_mul_pd(x, x));
    }
  }
  for (int k = 0; k < kVectors; ++k) _mm512_storeu_pd(lanes + k * kWidth, sum[k]);
}

}  // namespace

template <class T>
void add_square_rows_avx512(const T* tile, i64 rows, double* lanes) {
  add_rows(tile, rows, lanes);
}

template void add_square_rows_avx512(const float*, i64, double*);
template void add_square_rows_avx512(const double*, i64, double*);
template void add_square_rows_avx512(const BFloat16*, i64, double*);

}  // namespace spillway::optim
#endif
