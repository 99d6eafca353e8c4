#if defined(__x86_64__)
#include "optim/lanes_avx512.h"

#include "optim/adamw_tile_inl.h"
#include "optim/moments8_inl.h"

namespace spillway::optim {

void update_avx512(const Stretch& stretch) { avx512::update(stretch); }

void decode_block_avx512(const BlockCodes<const u8>& codes, BlockMoments& moments) { avx512::decode_block(codes, moments); }

void encode_block_avx512(const BlockMoments& moments, const BlockCodes<u8>& codes, const RoundingNoise& noise, bool streaming) {
  streaming ? avx512::encode_rows<true>(moments, codes, noise) : avx512::encode_rows<false>(moments, codes, noise);
}

}  // namespace spillway::optim
#endif
