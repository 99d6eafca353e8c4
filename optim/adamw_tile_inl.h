// The vector version of the kernels in adamw_tile_scalar.cc, shared by AVX2 and AVX-512. Include it after lanes_avx2.h or lanes_avx512.h,
// whose operations it uses. The kernels process whole rows (64 elements).
#include "optim/adamw_tile_paths.h"
#include "optim/bf16.h"

namespace spillway::optim::SPILLWAY_ISA {

template <class L>
struct Splats {
  typename L::V scale, decay, one_minus_beta1, beta2, one_minus_beta2, root_correction2, eps, step_size;
};

template <class L>
SPILLWAY_LANE Splats<L> splats(const Scalars<double>& scalars) {
  const auto s = rounded<typename L::Element>(scalars);
  return {L::splat(s.gradient_scale),   L::splat(s.decay), L::splat(s.one_minus_beta1), L::splat(s.beta2), L::splat(s.one_minus_beta2),
          L::splat(s.root_correction2), L::splat(s.eps),   L::splat(s.step_size)};
}

template <class L>
struct Values {
  typename L::V master, m, v;
};

template <class L>
SPILLWAY_LANE Values<L> moved(const Values<L>& old, typename L::V gradient, const Splats<L>& s) {
  const auto g = L::mul(gradient, s.scale);
  const auto decayed = L::mul(old.master, s.decay);
  const auto m = L::add(old.m, L::mul(L::sub(g, old.m), s.one_minus_beta1));
  const auto v = L::add(L::mul(old.v, s.beta2), L::mul(s.one_minus_beta2, L::mul(g, g)));
  const auto root = L::add(L::div(L::sqrt(v), s.root_correction2), s.eps);
  return {L::sub(decayed, L::mul(s.step_size, L::div(m, root))), m, v};
}

template <class T>
inline const T* at(const std::byte* column, i64 i) {
  return reinterpret_cast<const T*>(column) + i;
}
template <class T>
inline T* at(std::byte* column, i64 i) {
  return reinterpret_cast<T*>(column) + i;
}

SPILLWAY_LANE F32::V load_bf16(const std::byte* column, i64 i) {
  return F32::of_bits(U32::shift_left<16>(U32::load_u16(at<u16>(column, i))));
}

template <Weights W>
SPILLWAY_LANE F32::V load_master(const Columns& c, i64 i) {
  if constexpr (W == Weights::own_master) return F32::load(at<float>(c.weight, i));
  if constexpr (has_whole_master(W)) return F32::load(at<float>(c.master, i));
  if constexpr (W == Weights::split_master) {
    const auto weight = U32::load_u16(at<u16>(c.weight, i)), remainder = U32::load_u16(at<u16>(c.master, i));
    const auto carry = U32::shift_left<1>(U32::bit_and(remainder, U32::splat(0x8000)));
    return F32::of_bits(U32::sub(U32::bit_or(U32::shift_left<16>(weight), remainder), carry));
  }
}

/// The 16-bit results of a row of 64 elements, collected until the row is complete, so that whole cache lines are written.
struct RowHalves {
  U32::V weight[4], remainder[4], m[4], v[4];
};

template <Weights W, bool kStream>
SPILLWAY_LANE void store_master(const Columns& c, i64 i, F32::V x, U32::V& weight, U32::V& remainder) {
  if constexpr (W == Weights::own_master) {
    F32::store<kStream>(at<float>(c.new_weight, i), x);
  } else {
    const auto bits = F32::bits_unless_nan(x, F32::bits(x), U32::splat(kNanBits));
    if constexpr (W == Weights::fp32_master_of_f16)
      weight = F32::f16_bits(F32::of_bits(bits));
    else
      weight = U32::shift_right<16>(U32::add(bits, U32::splat(0x8000)));
    if constexpr (has_whole_master(W)) F32::store<kStream>(at<float>(c.new_master, i), F32::of_bits(bits));
    if constexpr (W == Weights::split_master) remainder = bits;
  }
}

template <Moments M>
SPILLWAY_LANE F32::V load_moment(const std::byte* column, i64 i) {
  if constexpr (M == Moments::bf16)
    return load_bf16(column, i);
  else
    return F32::load(at<float>(column, i));
}

template <Moments M, bool kStream>
SPILLWAY_LANE void store_moment(std::byte* column, i64 i, F32::V x, U32::V noise, U32::V& half) {
  if constexpr (M == Moments::bf16) {
    const auto sum = U32::shift_right<16>(U32::add(F32::bits(x), noise));
    half = F32::bits_unless_nan(x, sum, U32::splat(kNanBits >> 16));
  } else {
    F32::store<kStream && M == Moments::fp32>(at<float>(column, i), x);
  }
}

template <bool kStream>
SPILLWAY_LANE void store_halves(std::byte* column, i64 row, const U32::V (&half)[4]) {
  U32::store_u16<kStream>(at<u16>(column, row), half[0], half[1]);
  U32::store_u16<kStream>(at<u16>(column, row + 32), half[2], half[3]);
}

/// The random words of a row; word k serves the row's elements 16 k to 16 k + 15.
struct RowNoise {
  U32::V word[4];
};

// Computes Philox 4x32-10 (base/random.h) on 64-bit lanes whose lower halves hold the counter's
// words. With this layout the lower and upper half of each 64-bit product need not be moved.
SPILLWAY_LANE void philox_words(U32::V (&x)[4], u32 k0, u32 k1) {
  const auto m0 = U32::splat(0xD2511F53u), m1 = U32::splat(0xCD9E8D57u);
  for (int round = 0; round < 10; ++round) {
    const auto p0 = U32::mul_low(x[0], m0), p1 = U32::mul_low(x[2], m1);
    x[0] = U32::bit_xor(U32::bit_xor(U32::upper(p1), x[1]), U32::splat(k0));
    x[2] = U32::bit_xor(U32::bit_xor(U32::upper(p0), x[3]), U32::splat(k1));
    x[1] = p1;
    x[3] = p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

SPILLWAY_LANE RowNoise row_noise(const RoundingNoise& noise, i64 row_begin) {
  const u64 counter = (noise.first_element + static_cast<u64>(row_begin)) / 64 * 16;
  const auto splat_low = [](u64 x) { return static_cast<u32>(x); };
  const auto high = U32::splat(splat_low(counter >> 32));
  const auto t_low = U32::splat(splat_low(noise.t)), t_high = U32::splat(splat_low(noise.t >> 32));
  const auto low = U32::add(U32::splat(splat_low(counter)), U32::iota());
  U32::V even[4] = {low, high, t_low, t_high}, odd[4] = {U32::upper(low), high, t_low, t_high};
  philox_words(even, splat_low(noise.key.value), splat_low(noise.key.value >> 32));
  philox_words(odd, splat_low(noise.key.value), splat_low(noise.key.value >> 32));
  return {{U32::merge(even[0], odd[0]), U32::merge(even[1], odd[1]), U32::merge(even[2], odd[2]), U32::merge(even[3], odd[3])}};
}

SPILLWAY_LANE U32::V noise_of_m(U32::V word) { return U32::bit_and(word, U32::splat(0xffff)); }
SPILLWAY_LANE U32::V noise_of_v(U32::V word) { return U32::shift_right<16>(word); }

template <Weights W, Moments M, bool kBf16Gradient, bool kStream>
SPILLWAY_TARGET void update_rows(const Stretch& stretch) {
  const Columns c = stretch.columns;
  const auto s = splats<F32>(stretch.scalars);
  for (i64 row = stretch.begin; row < stretch.end; row += kRowElems) {
    RowNoise noise;
    if constexpr (M == Moments::bf16)
      noise = row_noise(stretch.noise, row);
    else
      noise.word[0] = noise.word[1] = noise.word[2] = noise.word[3] = U32::splat(0);
    RowHalves halves;
    for (int k = 0; k < 4; ++k) {
      const i64 i = row + k * F32::kWidth;
      const auto gradient = kBf16Gradient ? load_bf16(c.gradient, i) : F32::load(at<float>(c.gradient, i));
      const auto x = moved<F32>({load_master<W>(c, i), load_moment<M>(c.m, i), load_moment<M>(c.v, i)}, gradient, s);
      store_moment<M, kStream>(c.new_m, i, x.m, noise_of_m(noise.word[k]), halves.m[k]);
      store_moment<M, kStream>(c.new_v, i, x.v, noise_of_v(noise.word[k]), halves.v[k]);
      store_master<W, kStream>(c, i, x.master, halves.weight[k], halves.remainder[k]);
    }
    if constexpr (M == Moments::bf16) store_halves<kStream>(c.new_m, row, halves.m), store_halves<kStream>(c.new_v, row, halves.v);
    if constexpr (W != Weights::own_master) store_halves<kStream>(c.new_weight, row, halves.weight);
    if constexpr (W == Weights::split_master) store_halves<kStream>(c.new_master, row, halves.remainder);
  }
}

template <bool kStream>
SPILLWAY_TARGET void update_rows_f64(const Stretch& stretch) {
  const Columns c = stretch.columns;
  const auto s = splats<F64>(stretch.scalars);
  for (i64 i = stretch.begin; i < stretch.end; i += F64::kWidth) {
    const auto load = [i](const std::byte* column) { return at<double>(column, i); };
    const auto x = moved<F64>({F64::load(load(c.weight)), F64::load(load(c.m)), F64::load(load(c.v))}, F64::load(load(c.gradient)), s);
    F64::store<kStream>(at<double>(c.new_m, i), x.m);
    F64::store<kStream>(at<double>(c.new_v, i), x.v);
    F64::store<kStream>(at<double>(c.new_weight, i), x.master);
  }
}

inline void update(const Stretch& stretch) {
  if (stretch.format.weight == DType::f64) return stretch.streaming ? update_rows_f64<true>(stretch) : update_rows_f64<false>(stretch);
  for_fp32_format(stretch.format, [&]<Weights W, Moments M>() {
    const bool bf16_gradient = stretch.format.gradient == DType::bf16;
    if (stretch.streaming) return bf16_gradient ? update_rows<W, M, true, true>(stretch) : update_rows<W, M, false, true>(stretch);
    bf16_gradient ? update_rows<W, M, true, false>(stretch) : update_rows<W, M, false, false>(stretch);
  });
}

}  // namespace spillway::optim::SPILLWAY_ISA
