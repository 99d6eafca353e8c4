// Adds the squares of whole rows with AVX2 (norm_paths.h). The 64 partial sums (lanes) in fp64 fill all sixteen vector registers; the one
// or two registers that the compiler spills to memory cost less than a second pass over the row.
#if defined(__x86_64__)
#include <immintrin.h>

#include "optim/norm_paths.h"

#define SPILLWAY_AVX2 __attribute__((target("avx2")))

namespace spillway::optim {
namespace {

constexpr int kVectors = 16;
constexpr i64 kWidth = 4;

SPILLWAY_AVX2 inline __m256d widen(const float* at) { return _mm256_cvtps_pd(_mm_loadu_ps(at)); }
SPILLWAY_AVX2 inline __m256d widen(const double* at) { return _mm256_loadu_pd(at); }
SPILLWAY_AVX2 inline __m256d widen(const BFloat16* at) {
  const __m128i bits = _mm_cvtepu16_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
  return _mm256_cvtps_pd(_mm_castsi128_ps(_mm_slli_epi32(bits, 16)));
}

template <class T>
SPILLWAY_AVX2 void add_rows(const T* at, i64 rows, double* lanes) {
  __m256d sum[kVectors];
  for (int k = 0; k < kVectors; ++k) sum[k] = _mm256_loadu_pd(lanes + k * kWidth);
  for (i64 row = 0; row < rows; ++row, at += kNormLanes) {
    for (int k = 0; k < kVectors; ++k) {
      const __m256d x = widen(at + k * kWidth);
      sum[k] = _mm256_add_pd(sum[k], _mm256_mul_pd(x, x));
    }
  }
  for (int k = 0; k < kVectors; ++k) _mm256_storeu_pd(lanes + k * kWidth, sum[k]);
}

}  // namespace

template <class T>
void add_square_rows_avx2(const T* tile, i64 rows, double* lanes) {
  add_rows(tile, rows, lanes);
}

template void add_square_rows_avx2(const float*, i64, double*);
template void add_square_rows_avx2(const double*, i64, double*);
template void add_square_rows_avx2(const BFloat16*, i64, double*);

}  // namespace spillway::optim
#endif
