// Vector operations on AVX2 for adamw_tile_inl.h, moments8_inl.h and rules/rules_inl.h. They work on pairs of vectors, so that the
// widths are those of lanes_avx512.h, which explains the names. A file includes lanes_avx2.h or lanes_avx512.h before the *_inl.h files.
#pragma once
#include <immintrin.h>

#include "base/types.h"

#define SPILLWAY_ISA avx2
#define SPILLWAY_TARGET __attribute__((target("avx2,f16c")))
#define SPILLWAY_LANE SPILLWAY_TARGET __attribute__((always_inline)) static inline

// Defines name(a) or name(a, b) as one instruction on both vectors of a pair.
#define SPILLWAY_PAIR_1(name, instruction) \
  SPILLWAY_LANE V name(V a) { return {instruction(a.low), instruction(a.high)}; }
#define SPILLWAY_PAIR_2(name, instruction) \
  SPILLWAY_LANE V name(V a, V b) { return {instruction(a.low, b.low), instruction(a.high, b.high)}; }

namespace spillway::optim::avx2 {

struct F64 {
  struct V {
    __m256d low, high;
  };
  using Element = double;
  static constexpr i64 kWidth = 8;
  SPILLWAY_LANE V load(const double* at) { return {_mm256_loadu_pd(at), _mm256_loadu_pd(at + 4)}; }
  template <bool kStream>
  SPILLWAY_LANE void store(double* at, V x) {
    kStream ? _mm256_stream_pd(at, x.low) : _mm256_storeu_pd(at, x.low);
    kStream ? _mm256_stream_pd(at + 4, x.high) : _mm256_storeu_pd(at + 4, x.high);
  }
  SPILLWAY_LANE V splat(double x) { return {_mm256_set1_pd(x), _mm256_set1_pd(x)}; }
  SPILLWAY_PAIR_2(add, _mm256_add_pd)
  SPILLWAY_PAIR_2(sub, _mm256_sub_pd)
  SPILLWAY_PAIR_2(mul, _mm256_mul_pd)
  SPILLWAY_PAIR_2(div, _mm256_div_pd)
  SPILLWAY_PAIR_2(max, _mm256_max_pd)
  SPILLWAY_PAIR_1(sqrt, _mm256_sqrt_pd)
  SPILLWAY_LANE __m256d one_sign(__m256d x) {
    const __m256d zero = _mm256_setzero_pd();
    const __m256d y = _mm256_blendv_pd(x, _mm256_set1_pd(1), _mm256_cmp_pd(x, zero, _CMP_GT_OQ));
    return _mm256_blendv_pd(y, _mm256_set1_pd(-1), _mm256_cmp_pd(x, zero, _CMP_LT_OQ));
  }
  SPILLWAY_PAIR_1(sign, one_sign)
};

struct U32 {
  struct V {
    __m256i low, high;
  };
  SPILLWAY_LANE V splat(u32 x) { return {_mm256_set1_epi32(static_cast<int>(x)), _mm256_set1_epi32(static_cast<int>(x))}; }
  SPILLWAY_LANE V iota() { return {_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15)}; }
  SPILLWAY_PAIR_2(add, _mm256_add_epi32)
  SPILLWAY_PAIR_2(sub, _mm256_sub_epi32)
  SPILLWAY_PAIR_2(bit_and, _mm256_and_si256)
  SPILLWAY_PAIR_2(bit_or, _mm256_or_si256)
  SPILLWAY_PAIR_2(bit_xor, _mm256_xor_si256)
  SPILLWAY_PAIR_2(min, _mm256_min_epi32)
  SPILLWAY_PAIR_2(max, _mm256_max_epi32)
  SPILLWAY_PAIR_2(mul_low, _mm256_mul_epu32)
  template <int kBits>
  SPILLWAY_LANE V shift_left(V x) {
    return {_mm256_slli_epi32(x.low, kBits), _mm256_slli_epi32(x.high, kBits)};
  }
  template <int kBits>
  SPILLWAY_LANE V shift_right(V x) {
    return {_mm256_srli_epi32(x.low, kBits), _mm256_srli_epi32(x.high, kBits)};
  }
  SPILLWAY_LANE V sign(V x) { return {_mm256_srai_epi32(x.low, 31), _mm256_srai_epi32(x.high, 31)}; }
  SPILLWAY_LANE V upper(V x) { return {_mm256_srli_epi64(x.low, 32), _mm256_srli_epi64(x.high, 32)}; }
  SPILLWAY_LANE V merge(V even, V odd) {
    return {_mm256_blend_epi32(even.low, _mm256_slli_epi64(odd.low, 32), 0xaa),
            _mm256_blend_epi32(even.high, _mm256_slli_epi64(odd.high, 32), 0xaa)};
  }
  SPILLWAY_LANE __m128i load_128(const void* at) { return _mm_loadu_si128(static_cast<const __m128i*>(at)); }
  SPILLWAY_LANE V load_u16(const u16* at) { return {_mm256_cvtepu16_epi32(load_128(at)), _mm256_cvtepu16_epi32(load_128(at + 8))}; }
  SPILLWAY_LANE V load_u8(const u8* at) {
    const __m128i bytes = load_128(at);
    return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
  }
  SPILLWAY_LANE V load_i8(const u8* at) {
    const __m128i bytes = load_128(at);
    return {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
  }
  // Packs the lower 16 bits of each lane. The pack instruction saturates, so the bits outside `mask` are
  // cleared first. It works on each 128-bit half separately, so the 64-bit quarters are reordered afterwards.
  SPILLWAY_LANE __m256i pack_u16(V x, u32 mask) {
    const V y = bit_and(x, splat(mask));
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(y.low, y.high), 0xd8);
  }
  template <bool kStream>
  SPILLWAY_LANE void store_256(void* at, __m256i x) {
    kStream ? _mm256_stream_si256(static_cast<__m256i*>(at), x) : _mm256_storeu_si256(static_cast<__m256i*>(at), x);
  }
  template <bool kStream>
  SPILLWAY_LANE void store_u16(u16* at, V first, V second) {
    store_256<kStream>(at, pack_u16(first, 0xffff));
    store_256<kStream>(at + 16, pack_u16(second, 0xffff));
  }
  template <bool kStream>
  SPILLWAY_LANE void store_u8(u8* at, V x) {
    const __m256i half = pack_u16(x, 0xff);
    const __m128i narrow = _mm_packus_epi16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    kStream ? _mm_stream_si128(reinterpret_cast<__m128i*>(at), narrow) : _mm_storeu_si128(reinterpret_cast<__m128i*>(at), narrow);
  }
};

struct F32 {
  struct V {
    __m256 low, high;
  };
  using Element = float;
  static constexpr i64 kWidth = 16;
  SPILLWAY_LANE V load(const float* at) { return {_mm256_loadu_ps(at), _mm256_loadu_ps(at + 8)}; }
  template <bool kStream>
  SPILLWAY_LANE void store(float* at, V x) {
    kStream ? _mm256_stream_ps(at, x.low) : _mm256_storeu_ps(at, x.low);
    kStream ? _mm256_stream_ps(at + 8, x.high) : _mm256_storeu_ps(at + 8, x.high);
  }
  SPILLWAY_LANE V splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  SPILLWAY_LANE V lookup(const float (&table)[8], U32::V index) {
    const __m256 values = _mm256_loadu_ps(table);
    return {_mm256_permutevar8x32_ps(values, index.low), _mm256_permutevar8x32_ps(values, index.high)};
  }
  SPILLWAY_PAIR_2(add, _mm256_add_ps)
  SPILLWAY_PAIR_2(sub, _mm256_sub_ps)
  SPILLWAY_PAIR_2(mul, _mm256_mul_ps)
  SPILLWAY_PAIR_2(div, _mm256_div_ps)
  SPILLWAY_PAIR_2(min, _mm256_min_ps)
  SPILLWAY_PAIR_2(max, _mm256_max_ps)
  SPILLWAY_PAIR_1(sqrt, _mm256_sqrt_ps)
  SPILLWAY_LANE __m256 one_sign(__m256 x) {
    const __m256 zero = _mm256_setzero_ps();
    const __m256 y = _mm256_blendv_ps(x, _mm256_set1_ps(1), _mm256_cmp_ps(x, zero, _CMP_GT_OQ));
    return _mm256_blendv_ps(y, _mm256_set1_ps(-1), _mm256_cmp_ps(x, zero, _CMP_LT_OQ));
  }
  SPILLWAY_PAIR_1(sign, one_sign)
  SPILLWAY_LANE U32::V bits(V x) { return {_mm256_castps_si256(x.low), _mm256_castps_si256(x.high)}; }
  SPILLWAY_LANE V of_bits(U32::V x) { return {_mm256_castsi256_ps(x.low), _mm256_castsi256_ps(x.high)}; }
  SPILLWAY_LANE V of_integer(U32::V x) { return {_mm256_cvtepi32_ps(x.low), _mm256_cvtepi32_ps(x.high)}; }
  SPILLWAY_LANE __m256i one_f16_bits(__m256 x) { return _mm256_cvtepu16_epi32(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT)); }
  SPILLWAY_LANE U32::V f16_bits(V x) { return {one_f16_bits(x.low), one_f16_bits(x.high)}; }
  SPILLWAY_LANE U32::V truncate(V x) { return {_mm256_cvttps_epi32(x.low), _mm256_cvttps_epi32(x.high)}; }
  SPILLWAY_LANE __m256i choose_nan(__m256 x, __m256i of_x, __m256i other) {
    return _mm256_blendv_epi8(of_x, other, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
  }
  SPILLWAY_LANE U32::V bits_unless_nan(V x, U32::V of_x, U32::V other) {
    return {choose_nan(x.low, of_x.low, other.low), choose_nan(x.high, of_x.high, other.high)};
  }
  SPILLWAY_LANE __m256i one_if_positive(__m256 x) {
    return _mm256_srli_epi32(_mm256_castps_si256(_mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_GT_OQ)), 31);
  }
  SPILLWAY_LANE U32::V is_positive(V x) { return {one_if_positive(x.low), one_if_positive(x.high)}; }
};

}  // namespace spillway::optim::avx2
