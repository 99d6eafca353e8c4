// The plain C++ version of AdamW's tile kernels: the reference that adamw_tile_inl.h and moments8_inl.h must reproduce bit for bit.
#include "optim/adamw_element.h"
#include "optim/element.h"
#include "optim/moments8.h"

namespace spillway::optim {
namespace {

ElementNoise noise_of(const RoundingNoise& noise, i64 i) {
  const u64 e = noise.first_element + static_cast<u64>(i);
  return element_noise(philox(noise.key, noise.t, noise_counter(e))[e / 16 % 4]);
}

template <class T, Weights W>
T load_master(const Columns& c, i64 i) {
  if constexpr (W == Weights::own_master) return load_element<T>(c.weight, i);
  if constexpr (has_whole_master(W)) return load_element<float>(c.master, i);
  if constexpr (W == Weights::split_master) return join_master(load_element<u16>(c.weight, i), load_element<u16>(c.master, i));
}

template <class T, Weights W>
void store_master(const Columns& c, i64 i, T x) {
  if constexpr (W == Weights::own_master) {
    store_element(c.new_weight, i, x);
  } else {
    const float master = canonical(x);
    store_element(c.new_weight, i, rounded_weight<W>(master));
    if constexpr (has_whole_master(W)) store_element(c.new_master, i, master);
    if constexpr (W == Weights::split_master) store_element(c.new_master, i, remainder_of_master(master));
  }
}

template <class T, Moments M>
T load_moment(const std::byte* column, i64 i) {
  if constexpr (M == Moments::bf16)
    return widen_bf16(load_element<u16>(column, i));
  else
    return load_element<T>(column, i);
}

template <class T, Weights W, Moments M>
void update(const Stretch& stretch) {
  const Columns& c = stretch.columns;
  const auto s = rounded<T>(stretch.scalars);
  const bool bf16_gradient = stretch.format.gradient == DType::bf16;
  for (i64 i = stretch.begin; i < stretch.end; ++i) {
    const T gradient = bf16_gradient ? static_cast<T>(widen_bf16(load_element<u16>(c.gradient, i))) : load_element<T>(c.gradient, i);
    const auto [master, m, v] = moved<T>({load_master<T, W>(c, i), load_moment<T, M>(c.m, i), load_moment<T, M>(c.v, i)}, gradient, s);
    store_master<T, W>(c, i, master);
    if constexpr (M == Moments::bf16) {
      const ElementNoise noise = noise_of(stretch.noise, i);
      store_element(c.new_m, i, round_moment_bf16(m, noise.m));
      store_element(c.new_v, i, round_moment_bf16(v, noise.v));
    } else {
      store_element(c.new_m, i, m);
      store_element(c.new_v, i, v);
    }
  }
}

}  // namespace

void update_scalar(const Stretch& stretch) {
  if (stretch.format.weight == DType::f64) return update<double, Weights::own_master, Moments::fp32>(stretch);
  for_fp32_format(stretch.format, [&]<Weights W, Moments M>() { update<float, W, M>(stretch); });
}

void decode_block_scalar(const BlockCodes<const u8>& codes, BlockMoments& moments) {
  for (i64 i = 0; i < kMomentBlockElems; ++i) {
    moments.m[i] = decode_m(codes.m[i], codes.m_scale);
    moments.v[i] = decode_v(codes.v[i], codes.v_scale);
  }
}

void encode_block_scalar(const BlockMoments& moments, const BlockCodes<u8>& codes, const RoundingNoise& noise) {
  for (i64 i = 0; i < kMomentBlockElems; ++i) {
    const ElementNoise at = noise_of(noise, i);
    codes.m[i] = encode_m(moments.m[i], codes.m_scale, at.m);
    codes.v[i] = encode_v(moments.v[i], codes.v_scale, at.v);
  }
}

}  // namespace spillway::optim
