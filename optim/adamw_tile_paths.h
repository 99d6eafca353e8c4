// The kernels behind adamw_update and adamw_update_tile. Only files that implement the optimizer's kernels include this header. A
// kernel updates a stretch of elements that share their scalars. The kernels use intrinsics in functions with a target attribute,
// because a caller must be able to choose an instruction set and because the exact bits are a promise: the operations are written
// out one by one, once in plain C++ (the reference) and once in vector code (adamw_tile_inl.h) for AVX2 and AVX-512. Two things
// prevent fused multiply-adds: -ffp-contract=off (set by the build; without it the compiler may fuse even intrinsics), and for
// AVX2 a target without FMA. Square root and division are correctly rounded; reciprocal estimates are not used.
#pragma once
#include <cmath>

#include "optim/adamw_tile.h"

namespace spillway::optim {

/// The number of elements in a row: the random numbers of a row are drawn together, and the vector kernels process whole rows.
constexpr i64 kRowElems = 64;

/// Throws Error(bug) unless `parts` ascend, the last one ends at `elems`, and `noise.first_element` is a multiple of kRowElems.
void check_parts(std::span<const TilePart> parts, i64 elems, const RoundingNoise& noise);

/// Tells what the weight column holds and where the master weight is stored. own_master: the weight is its own master. fp32_master,
/// fp32_master_of_f16: an fp32 master lies in the state. split_master: the state holds the lower half of the master's bits.
enum class Weights { own_master, fp32_master, fp32_master_of_f16, split_master };
/// Returns true if an fp32 master lies in the state (and not only half of it, as with split_master).
constexpr bool has_whole_master(Weights w) { return w == Weights::fp32_master || w == Weights::fp32_master_of_f16; }

/// Pointers to the arrays (columns) of a tile, or of a block of kMomentBlockElems elements of the tile. A pointer is null if the format
/// has no such array.
/// `master` is the fp32 master or the lower half of its bits. With int8 moments the m and v columns point to fp32 scratch memory.
struct Columns {
  const std::byte *gradient, *weight, *master, *m, *v;
  std::byte *new_weight, *new_master, *new_m, *new_v;
};

/// The elements [begin, end) of the columns, which share their scalars. `noise.first_element` is the index of the columns' element 0 in the
/// tensor.
struct Stretch {
  const StateFormat& format;
  const Columns& columns;
  i64 begin, end;
  const Scalars<double>& scalars;
  const RoundingNoise& noise;
  bool streaming;  // whether results are written past the caches, except those in the scratch memory of int8 moments
};

/// Updates any stretch, in plain C++; ignores `streaming`.
void update_scalar(const Stretch& stretch);
/// The AVX2 and AVX-512 versions update a stretch that consists of whole rows.
void update_avx2(const Stretch& stretch);
void update_avx512(const Stretch& stretch);
/// Updates any stretch with the fastest combination of update_scalar, update_avx2 and update_avx512 that `isa` (already resolved) allows.
void update_stretch(const Stretch& stretch, Isa isa);

/// The 8-bit moment codes of one block and their scales; Byte is u8 or const u8.
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
/// encode_block_scalar() and its AVX2 and AVX-512 versions encode a block of moments as 8-bit codes. `noise.first_element` is the index
/// of the block's element 0 in the tensor.
void encode_block_scalar(const BlockMoments& moments, const BlockCodes<u8>& codes, const RoundingNoise& noise);
void encode_block_avx2(const BlockMoments& moments, const BlockCodes<u8>& codes, const RoundingNoise& noise, bool streaming);
void encode_block_avx512(const BlockMoments& moments, const BlockCodes<u8>& codes, const RoundingNoise& noise, bool streaming);

/// Calls body.operator()<Weights, Moments>() with the values for `format`, which must not be f64.
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
