// Vector operations on AVX-512F for adamw_tile_inl.h, moments8_inl.h and rules/rules_inl.h, with the names and meanings of
// lanes_avx2.h. A file includes lanes_avx2.h or lanes_avx512.h before the *_inl.h files. F32 is a vector of 16 floats, U32
// holds their bits or 16 integers, F64 is 8 doubles. Loads and stores take any alignment; streamed stores need multiples of
// the vector's bytes. Zero-masking intrinsics with a full mask are used where g++ 12 emits a false warning for the plain ones.
#pragma once
#include <immintrin.h>

#include "base/types.h"

#define SPILLWAY_ISA avx512
#define SPILLWAY_TARGET __attribute__((target("avx512f")))
#define SPILLWAY_LANE SPILLWAY_TARGET __attribute__((always_inline)) static inline

namespace spillway::optim::avx512 {

constexpr __mmask16 kAll = 0xffff;

struct F64 {
  using V = __m512d;
  using Element = double;
  static constexpr i64 kWidth = 8;
  SPILLWAY_LANE V load(const double* at) { return _mm512_loadu_pd(at); }
  template <bool kStream>
  SPILLWAY_LANE void store(double* at, V x) {
    kStream ? _mm512_stream_pd(at, x) : _mm512_storeu_pd(at, x);
  }
  SPILLWAY_LANE V splat(double x) { return _mm512_set1_pd(x); }
  SPILLWAY_LANE V add(V a, V b) { return _mm512_add_pd(a, b); }
  SPILLWAY_LANE V sub(V a, V b) { return _mm512_sub_pd(a, b); }
  SPILLWAY_LANE V mul(V a, V b) { return _mm512_mul_pd(a, b); }
  SPILLWAY_LANE V div(V a, V b) { return _mm512_div_pd(a, b); }
  /// Returns the larger of a and b in each lane, or b if a or b is NaN.
  SPILLWAY_LANE V max(V a, V b) { return _mm512_maskz_max_pd(0xff, a, b); }
  SPILLWAY_LANE V sqrt(V x) { return _mm512_maskz_sqrt_pd(0xff, x); }
  /// Returns 1 or -1 in each lane; zeros and NaN are returned unchanged.
  SPILLWAY_LANE V sign(V x) {
    const V zero = _mm512_setzero_pd();
    const V y = _mm512_mask_mov_pd(x, _mm512_cmp_pd_mask(x, zero, _CMP_GT_OQ), splat(1));
    return _mm512_mask_mov_pd(y, _mm512_cmp_pd_mask(x, zero, _CMP_LT_OQ), splat(-1));
  }
};

struct U32 {
  using V = __m512i;
  SPILLWAY_LANE V splat(u32 x) { return _mm512_set1_epi32(static_cast<int>(x)); }
  SPILLWAY_LANE V iota() { return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }
  SPILLWAY_LANE V add(V a, V b) { return _mm512_add_epi32(a, b); }
  SPILLWAY_LANE V sub(V a, V b) { return _mm512_sub_epi32(a, b); }
  SPILLWAY_LANE V bit_and(V a, V b) { return _mm512_and_si512(a, b); }
  SPILLWAY_LANE V bit_or(V a, V b) { return _mm512_or_si512(a, b); }
  SPILLWAY_LANE V bit_xor(V a, V b) { return _mm512_xor_si512(a, b); }
  template <int kBits>
  SPILLWAY_LANE V shift_left(V x) {
    return _mm512_maskz_slli_epi32(kAll, x, kBits);
  }
  template <int kBits>
  SPILLWAY_LANE V shift_right(V x) {
    return _mm512_maskz_srli_epi32(kAll, x, kBits);
  }
  /// Returns all ones in the lanes whose top bit is set, and 0 in the others.
  SPILLWAY_LANE V sign(V x) { return _mm512_maskz_srai_epi32(kAll, x, 31); }
  SPILLWAY_LANE V min(V a, V b) { return _mm512_maskz_min_epi32(kAll, a, b); }
  SPILLWAY_LANE V max(V a, V b) { return _mm512_maskz_max_epi32(kAll, a, b); }
  /// mul_low(), upper() and merge() treat the vector as 64-bit lanes: mul_low multiplies the lower
  /// halves, upper moves the upper halves down, merge combines the lower halves of two vectors.
  SPILLWAY_LANE V mul_low(V a, V b) { return _mm512_maskz_mul_epu32(0xff, a, b); }
  SPILLWAY_LANE V upper(V x) { return _mm512_maskz_srli_epi64(0xff, x, 32); }
  SPILLWAY_LANE V merge(V even, V odd) { return _mm512_mask_mov_epi32(_mm512_maskz_slli_epi64(0xff, odd, 32), 0x5555, even); }
  SPILLWAY_LANE V load_u16(const u16* at) {
    return _mm512_maskz_cvtepu16_epi32(kAll, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  }
  SPILLWAY_LANE V load_u8(const u8* at) { return _mm512_maskz_cvtepu8_epi32(kAll, _mm_loadu_si128(reinterpret_cast<const __m128i*>(at))); }
  SPILLWAY_LANE V load_i8(const u8* at) { return _mm512_maskz_cvtepi8_epi32(kAll, _mm_loadu_si128(reinterpret_cast<const __m128i*>(at))); }
  /// Stores the lower 16 bits of each lane of two vectors. Together the two vectors fill a cache line; a streamed store of one vector would
  /// write half a line.
  template <bool kStream>
  SPILLWAY_LANE void store_u16(u16* at, V first, V second) {
    const __m512i low = _mm512_castsi256_si512(_mm512_maskz_cvtepi32_epi16(kAll, first));
    const __m512i line = _mm512_maskz_inserti64x4(0xff, low, _mm512_maskz_cvtepi32_epi16(kAll, second), 1);
    kStream ? _mm512_stream_si512(reinterpret_cast<__m512i*>(at), line) : _mm512_storeu_si512(at, line);
  }
  /// Stores the lower 8 bits of each lane.
  template <bool kStream>
  SPILLWAY_LANE void store_u8(u8* at, V x) {
    const __m128i narrow = _mm512_maskz_cvtepi32_epi8(kAll, x);
    kStream ? _mm_stream_si128(reinterpret_cast<__m128i*>(at), narrow) : _mm_storeu_si128(reinterpret_cast<__m128i*>(at), narrow);
  }
};

struct F32 {
  using V = __m512;
  using Element = float;
  static constexpr i64 kWidth = 16;
  SPILLWAY_LANE V load(const float* at) { return _mm512_loadu_ps(at); }
  template <bool kStream>
  SPILLWAY_LANE void store(float* at, V x) {
    kStream ? _mm512_stream_ps(at, x) : _mm512_storeu_ps(at, x);
  }
  SPILLWAY_LANE V splat(float x) { return _mm512_set1_ps(x); }
  /// Returns table[index] in each lane; each index must be below 8.
  SPILLWAY_LANE V lookup(const float (&table)[8], U32::V index) {
    return _mm512_maskz_permutexvar_ps(kAll, index, _mm512_castps256_ps512(_mm256_loadu_ps(table)));
  }
  SPILLWAY_LANE V add(V a, V b) { return _mm512_add_ps(a, b); }
  SPILLWAY_LANE V sub(V a, V b) { return _mm512_sub_ps(a, b); }
  SPILLWAY_LANE V mul(V a, V b) { return _mm512_mul_ps(a, b); }
  SPILLWAY_LANE V div(V a, V b) { return _mm512_div_ps(a, b); }
  SPILLWAY_LANE V sqrt(V x) { return _mm512_maskz_sqrt_ps(kAll, x); }
  SPILLWAY_LANE V min(V a, V b) { return _mm512_maskz_min_ps(kAll, a, b); }
  SPILLWAY_LANE V max(V a, V b) { return _mm512_maskz_max_ps(kAll, a, b); }
  SPILLWAY_LANE V sign(V x) {
    const V zero = _mm512_setzero_ps();
    const V y = _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, zero, _CMP_GT_OQ), splat(1));
    return _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(x, zero, _CMP_LT_OQ), splat(-1));
  }
  SPILLWAY_LANE U32::V bits(V x) { return _mm512_castps_si512(x); }
  SPILLWAY_LANE V of_bits(U32::V x) { return _mm512_castsi512_ps(x); }
  SPILLWAY_LANE V of_integer(U32::V x) { return _mm512_maskz_cvtepi32_ps(kAll, x); }
  /// Rounds to f16 and returns its bits in the lower half of each lane.
  SPILLWAY_LANE U32::V f16_bits(V x) {
    return _mm512_maskz_cvtepu16_epi32(kAll, _mm512_maskz_cvtps_ph(kAll, x, _MM_FROUND_TO_NEAREST_INT));
  }
  SPILLWAY_LANE U32::V truncate(V x) { return _mm512_maskz_cvttps_epi32(kAll, x); }
  /// Returns `of_x`, but in the lanes where `x` is NaN returns `other`.
  SPILLWAY_LANE U32::V bits_unless_nan(V x, U32::V of_x, U32::V other) {
    return _mm512_mask_mov_epi32(of_x, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), other);
  }
  /// Returns 1 in the lanes where x > 0, and 0 in the others.
  SPILLWAY_LANE U32::V is_positive(V x) { return _mm512_maskz_set1_epi32(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GT_OQ), 1); }
};

}  // namespace spillway::optim::avx512
