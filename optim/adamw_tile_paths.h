// The kernels behind adamw_update and adamw_update_tile, for their files alone: a stretch of elements under one set of scalars.
// Why intrinsics in functions with a target attribute: a caller must be able to pin one path, and the numbers are a promise, so the
// operations are written out one by one: once in plain C++ (right by definition), once in lanes (adamw_tile_inl.h) for AVX2 and AVX-512.
// What keeps them apart from a fused multiply-add: -ffp-contract=off (the build sets it; without it the compiler may fuse even
// intrinsics), and for AVX2 a target without FMA. Square root and division are correctly rounded; reciprocal estimates are not used.
#pragma once
#include <cmath>

#include "optim/adamw_tile.h"

namespace spillway::optim {

/// Elements that draw their noise together, and the unit of the vector kernels.
constexpr i64 kRowElems = 64;

/// `parts` ascend and the last ends at `elems`, and the noise begins with a row, else Error(bug).
void check_parts(std::span<const TilePart> parts, i64 elems, const RoundingNoise& noise);

/// What the weight column holds and where its master lies.
enum class Weights { own_master, fp32_master, fp32_master_of_f16, split_master };
/// The fp32 master lies in the state.
constexpr bool has_whole_master(Weights w) { return w == Weights::fp32_master || w == Weights::fp32_master_of_f16; }

/// One pointer for each array of the stretch's tile, or of a block of it; null where the format has none. `master` is the fp32 master or
/// the remainder. With int8 moments the m and v columns are fp32 scratch.
struct Columns {
  const std::byte *gradient, *weight, *master, *m, *v;
  std::byte *new_weight, *new_master, *new_m, *new_v;
};

/// `noise.first_element` stands for element 0 of the columns.
struct Stretch {
  const StateFormat& format;
  const Columns& columns;
  i64 begin, end;
  const Scalars<double>& scalars;
  const RoundingNoise& noise;
  bool streaming;  // the scratch of int8 moments is never streamed
};

/// Any stretch; not streamed.
void update_scalar(const Stretch& stretch);
/// Whole rows.
void update_avx2(const Stretch& stretch);
void update_avx512(const Stretch& stretch);
/// The best mixture of these for the resolved `isa`.
void update_stretch(const Stretch& stretch, Isa isa);

/// The 8-bit moments of one block, Byte = u8 or const u8, and their fp32 scratch.
template <class Byte>
struct BlockCodes {
  Byte *m, *v;
  float m_scale, v_scale;
};
struct BlockMoments {
  alignas(64) float m[kMomentBlockElems];
  alignas(64) float v[kMomentBlockElems];
};
void decode_block_scalar(const BlockCodes<const u8>& codes, BlockMoments& moments);
void decode_block_avx2(const BlockCodes<const u8>& codes, BlockMoments& moments);
void decode_block_avx512(const BlockCodes<const u8>& codes, BlockMoments& moments);
/// `noise.first_element` stands for element 0 of the block.
void encode_block_scalar(const BlockMoments& moments, const BlockCodes<u8>& codes, const RoundingNoise& noise);
void encode_block_avx2(const BlockMoments& moments, const BlockCodes<u8>& codes, const RoundingNoise& noise, bool streaming);
void encode_block_avx512(const BlockMoments& moments, const BlockCodes<u8>& codes, const RoundingNoise& noise, bool streaming);

/// Calls body.operator()<Weights, Moments>() with the format's; f64 is not among them.
template <class Body>
void for_fp32_format(const StateFormat& format, Body&& body) {
  const auto with_weights = [&]<Weights W>() {
    switch (format.moments) {
      case Moments::fp32:
        return body.template operator()<W, Moments::fp32>();
      case Moments::bf16:
        return body.template operator()<W, Moments::bf16>();
      case Moments::int8:
        return body.template operator()<W, Moments::int8>();
    }
  };
  if (format.weight == DType::f16) return with_weights.template operator()<Weights::fp32_master_of_f16>();
  if (format.weight != DType::bf16) return with_weights.template operator()<Weights::own_master>();
  if (format.master == Master::split) return with_weights.template operator()<Weights::split_master>();
  with_weights.template operator()<Weights::fp32_master>();
}

}  // namespace spillway::optim
