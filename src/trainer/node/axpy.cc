#include "trainer/node/axpy.h"

#include <numeric>

#include "optim/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace spillway::trainer {
namespace {

using optim::Isa;

#if defined(__x86_64__)
__attribute__((target("avx512f"))) i64 axpy_avx512(float* a, const float* b, i64 n, float s) {
  const __m512 factor = _mm512_set1_ps(s);
  i64 i = 0;
  for (; i + 16 <= n; i += 16) {
    _mm512_storeu_ps(a + i, _mm512_add_ps(_mm512_loadu_ps(a + i), _mm512_mul_ps(factor, _mm512_loadu_ps(b + i))));
  }
  return i;
}

__attribute__((target("avx2"))) i64 axpy_avx2(float* a, const float* b, i64 n, float s) {
  const __m256 factor = _mm256_set1_ps(s);
  i64 i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(a + i, _mm256_add_ps(_mm256_loadu_ps(a + i), _mm256_mul_ps(factor, _mm256_loadu_ps(b + i))));
  }
  return i;
}
#endif

}  // namespace

void axpy(float* a, const float* b, i64 n, float s) {
  i64 i = 0;
#if defined(__x86_64__)
  static const Isa best = optim::resolve(Isa::best);
  if (best == Isa::avx512) i = axpy_avx512(a, b, n, s);
  if (best == Isa::avx2) i = axpy_avx2(a, b, n, s);
#endif
  for (; i < n; ++i) a[i] += s * b[i];
}

float plain_sum(const float* a, i64 n) {
  constexpr i64 kStretches = 8, kLine = 16;
  float sum[kStretches][kLine] = {};
  const i64 stretch = n / kStretches / kLine * kLine;
  for (i64 i = 0; i < stretch; i += kLine) {
    for (i64 s = 0; s < kStretches; ++s) {
      for (i64 k = 0; k < kLine; ++k) sum[s][k] += a[s * stretch + i + k];
    }
  }
  const float all = std::accumulate(&sum[0][0], &sum[0][0] + kStretches * kLine, 0.0f);
  return std::accumulate(a + kStretches * stretch, a + n, all);
}

}  // namespace spillway::trainer
