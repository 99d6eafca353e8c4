#include "optim/adamw_tile.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/error.h"
#include "optim/adamw_tile_paths.h"
#include "optim/element.h"
#include "optim/moments8.h"

namespace spillway::optim {
namespace {

// The arguments of one call of adamw_update_tile.
struct Job {
  const StateFormat& format;
  const TileOperands& tile;
  std::span<const TilePart> parts;
  const RoundingNoise& noise;
  Isa isa;
  bool streaming;
};

Columns columns_of(const StateFormat& f, const TileOperands& tile) {
  // the average begins where the master ends, so an offset above 0 means that the state has a master
  const bool has_master = f.average_begin_bytes() > 0;
  return {.gradient = tile.gradient,
          .weight = tile.weight,
          .master = has_master ? tile.state : nullptr,
          .m = tile.state + f.m_begin_bytes(),
          .v = tile.state + f.v_begin_bytes(),
          .new_weight = tile.new_weight,
          .new_master = has_master ? tile.new_state : nullptr,
          .new_m = tile.new_state + f.m_begin_bytes(),
          .new_v = tile.new_state + f.v_begin_bytes()};
}

/// Updates the elements [begin, end) part by part; the columns begin at element `begin`.
void update_parts(const Job& job, const Columns& columns, i64 begin, i64 end) {
  RoundingNoise noise = job.noise;
  noise.first_element += static_cast<u64>(begin);
  auto part = std::partition_point(job.parts.begin(), job.parts.end(), [&](const TilePart& p) { return p.end <= begin; });
  for (i64 from = begin; from < end; ++part) {
    const i64 to = std::min(end, part->end);
    update_stretch(
        {job.format, columns, from - begin, to - begin, part->scalars ? *part->scalars : kGapScalars<double>, noise, job.streaming},
        job.isa);
    from = to;
  }
}

void decode(const BlockCodes<const u8>& codes, BlockMoments& moments, Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::avx512) return decode_block_avx512(codes, moments);
  if (isa == Isa::avx2) return decode_block_avx2(codes, moments);
#endif
  if (isa == Isa::scalar) decode_block_scalar(codes, moments);
}

void encode(const BlockMoments& moments, const BlockCodes<u8>& codes, const RoundingNoise& noise, Isa isa, bool streaming) {
#if defined(__x86_64__)
  if (isa == Isa::avx512) return encode_block_avx512(moments, codes, noise, streaming);
  if (isa == Isa::avx2) return encode_block_avx2(moments, codes, noise, streaming);
#endif
  if (isa == Isa::scalar && !streaming) encode_block_scalar(moments, codes, noise);
}

/// Returns the columns of one block of kMomentBlockElems elements. The columns' m and v point to scratch memory.
Columns block_columns(const StateFormat& f, Columns c, i64 begin, BlockMoments& moments) {
  const i64 weight = begin * size_of(f.weight), master = begin * f.average_begin_bytes() / kTileElems;
  c.gradient += begin * size_of(f.gradient);
  c.weight += weight, c.new_weight += weight;
  if (c.master) c.master += master, c.new_master += master;
  c.m = c.new_m = reinterpret_cast<std::byte*>(moments.m);
  c.v = c.new_v = reinterpret_cast<std::byte*>(moments.v);
  return c;
}

void update_int8_block(const Job& job, const Columns& whole, i64 block, BlockMoments& moments) {
  const i64 begin = block * kMomentBlockElems, m_scales = job.format.scales_begin_bytes(), v_scales = m_scales + kScalesBytes;
  const std::byte* old = job.tile.state;
  decode({reinterpret_cast<const u8*>(whole.m) + begin, reinterpret_cast<const u8*>(whole.v) + begin,
          load_element<float>(old + m_scales, block), load_element<float>(old + v_scales, block)},
         moments, job.isa);
  update_parts(job, block_columns(job.format, whole, begin, moments), begin, begin + kMomentBlockElems);
  const BlockCodes<u8> codes{reinterpret_cast<u8*>(whole.new_m) + begin, reinterpret_cast<u8*>(whole.new_v) + begin, block_scale(moments.m),
                             block_scale(moments.v)};
  RoundingNoise noise = job.noise;
  noise.first_element += static_cast<u64>(begin);
  encode(moments, codes, noise, job.isa, job.streaming);
  store_element(job.tile.new_state + m_scales, block, codes.m_scale);
  store_element(job.tile.new_state + v_scales, block, codes.v_scale);
}

/// Updates a tile with int8 moments block by block through fp32 scratch memory, which stays in the L1 cache.
void update_int8(const Job& job) {
  const Columns whole = columns_of(job.format, job.tile);
  BlockMoments moments;
  for (i64 block = 0; block < kMomentBlocks; ++block) update_int8_block(job, whole, block, moments);
  const i64 used_bytes = job.format.scales_begin_bytes() + 2 * kScalesBytes;
  std::memset(job.tile.new_state + used_bytes, 0, static_cast<size_t>(job.format.state_tile_bytes() - used_bytes));
}

void check(const Job& job) {
  job.format.check();
  require(job.format.rule == Rule::adamw, "[adamw] expected a state format of AdamW");
  check_parts(job.parts, kTileElems, job.noise);
  const auto aligned = [](const std::byte* at) { return reinterpret_cast<std::uintptr_t>(at) % 64 == 0; };
  require(!job.streaming || (aligned(job.tile.new_weight) && aligned(job.tile.new_state)),
          "[adamw] expected the addresses of the new weight and state to be multiples of 64 bytes for streaming");
}

}  // namespace

void check_parts(std::span<const TilePart> parts, i64 elems, const RoundingNoise& noise) {
  i64 end = 0;
  for (const TilePart& part : parts) {
    require(part.end >= end, "[optimizer] expected the parts of a tile in ascending order");
    end = part.end;
  }
  require(end == elems, "[optimizer] expected the last part to end where the last tile ends");
  require(noise.first_element % kRowElems == 0, "[optimizer] expected the index of the tile's first element to be a multiple of 64");
}

void update_stretch(const Stretch& stretch, Isa isa) {
  const auto scalar = [&](i64 begin, i64 end) {
    Stretch piece = stretch;
    piece.begin = begin, piece.end = end;
    if (begin < end) update_scalar(piece);
  };
  if (isa == Isa::scalar) return scalar(stretch.begin, stretch.end);
  Stretch rows = stretch;
  rows.begin = std::min(round_up(stretch.begin, kRowElems), stretch.end);
  rows.end = std::max(stretch.end / kRowElems * kRowElems, rows.begin);
  scalar(stretch.begin, rows.begin);
#if defined(__x86_64__)
  if (rows.begin < rows.end) isa == Isa::avx512 ? update_avx512(rows) : update_avx2(rows);
#endif
  scalar(rows.end, stretch.end);
}

void adamw_update_tile(const StateFormat& format, const TileOperands& tile, std::span<const TilePart> parts, const RoundingNoise& noise,
                       Isa isa, bool streaming) {
  const Isa resolved = resolve(isa);
  const Job job{format, tile, parts, noise, resolved, streaming && resolved != Isa::scalar};
  check(job);
  if (format.moments == Moments::int8)
    update_int8(job);
  else
    update_parts(job, columns_of(format, tile), 0, kTileElems);
#if defined(__x86_64__)
  if (job.streaming) _mm_sfence();
#endif
}

}  // namespace spillway::optim
