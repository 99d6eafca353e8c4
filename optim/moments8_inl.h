// The vector version of the block kernels of moments8.h, shared by AVX2 and AVX-512. Include it after adamw_tile_inl.h.
#include <cstring>

#include "optim/moments8.h"

namespace spillway::optim::SPILLWAY_ISA {

// Decodes codes to fractions of the scale. The index of the line that a code lies on is the position of the code's leading one bit, which
// is the exponent of the code converted to float.
template <bool kSigned>
SPILLWAY_LANE F32::V code_values(U32::V code) {
  const CodeLines& chain = kCodeLines<kSigned>;
  const auto c = F32::of_integer(code);
  const auto line = U32::max(U32::sub(U32::shift_right<23>(F32::bits(c)), U32::splat(127)), U32::splat(0));
  const auto below = F32::mul(F32::sub(F32::lookup(chain.top_code, line), c), F32::lookup(chain.step, line));
  return F32::sub(F32::lookup(chain.top, line), below);
}

template <bool kSigned>
SPILLWAY_LANE F32::V code_places(F32::V value) {
  const CodeLines& chain = kCodeLines<kSigned>;
  auto place = F32::splat(chain.top_code[chain.lines - 1]);
  for (int l = 0; l < chain.lines; ++l) {
    const auto below = F32::mul(F32::sub(F32::splat(chain.top[l]), value), F32::splat(chain.codes_per_unit[l]));
    place = F32::min(place, F32::sub(F32::splat(chain.top_code[l]), below));
  }
  return F32::max(place, F32::splat(0));
}

/// Encodes magnitudes that are given as fractions of the scale.
template <bool kSigned>
SPILLWAY_LANE U32::V codes_of(F32::V fraction, U32::V noise) {
  const auto place = F32::add(code_places<kSigned>(fraction), F32::mul(F32::of_integer(noise), F32::splat(0x1p-16f)));
  return U32::min(F32::truncate(place), U32::splat(kSigned ? 127 : 255));
}

// Negates x in the lanes where `sign` is all ones: (x ^ sign) - sign.
SPILLWAY_LANE U32::V signed_by(U32::V x, U32::V sign) { return U32::sub(U32::bit_xor(x, sign), sign); }

SPILLWAY_TARGET inline void decode_block(const BlockCodes<const u8>& codes, BlockMoments& moments) {
  const auto m_scale = F32::splat(codes.m_scale), v_scale = F32::splat(codes.v_scale);
  for (i64 i = 0; i < kMomentBlockElems; i += F32::kWidth) {
    const auto m = U32::load_i8(codes.m + i), sign = U32::sign(m);
    const auto magnitude = F32::mul(code_values<true>(signed_by(m, sign)), m_scale);
    const auto sign_bit = U32::bit_and(sign, U32::splat(0x80000000u));
    F32::store<false>(moments.m + i, F32::of_bits(U32::bit_xor(F32::bits(magnitude), sign_bit)));
    F32::store<false>(moments.v + i, F32::mul(code_values<false>(U32::load_u8(codes.v + i)), v_scale));
  }
}

template <bool kStream>
SPILLWAY_LANE void encode_m(const float* m, float scale, U32::V word, u8* codes) {
  const auto x = F32::load(m);
  const auto magnitude = F32::of_bits(U32::bit_and(F32::bits(x), U32::splat(0x7fffffff)));
  const auto code = codes_of<true>(F32::div(magnitude, F32::splat(scale)), noise_of_m(word));
  U32::store_u8<kStream>(codes, signed_by(code, U32::sign(F32::bits(x))));
}

template <bool kStream>
SPILLWAY_LANE void encode_v(const float* v, float scale, U32::V word, u8* codes) {
  const auto x = F32::load(v);
  const auto code = codes_of<false>(F32::div(x, F32::splat(scale)), noise_of_v(word));
  U32::store_u8<kStream>(codes, U32::max(code, F32::is_positive(x)));
}

template <bool kStream>
SPILLWAY_TARGET inline void encode_rows(const BlockMoments& moments, const BlockCodes<u8>& codes, const RoundingNoise& noise) {
  const bool m_has_codes = codes.m_scale > 0, v_has_codes = codes.v_scale > 0;
  for (i64 row = 0; row < kMomentBlockElems; row += kRowElems) {
    const RowNoise words = row_noise(noise, row);
    for (int k = 0; k < 4; ++k) {
      const i64 i = row + k * F32::kWidth;
      if (m_has_codes) encode_m<kStream>(moments.m + i, codes.m_scale, words.word[k], codes.m + i);
      if (v_has_codes) encode_v<kStream>(moments.v + i, codes.v_scale, words.word[k], codes.v + i);
    }
  }
  if (!m_has_codes) std::memset(codes.m, 0, kMomentBlockElems);
  if (!v_has_codes) std::memset(codes.v, 0, kMomentBlockElems);
}

}  // namespace spillway::optim::SPILLWAY_ISA
