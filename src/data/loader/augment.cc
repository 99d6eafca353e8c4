#include "data/loader/augment.h"

namespace spillway::data {

void crop_and_flip(std::span<const u8> pixels_CHW, const Shape& shape_CHW, i64 border, const std::array<u32, 4>& random,
                   std::span<u8> changed_CHW) {
  const auto offset = [border](u32 word) { return static_cast<i64>(u64{word} * static_cast<u64>(2 * border + 1) >> 32) - border; };
  const i64 C = shape_CHW[0], H = shape_CHW[1], W = shape_CHW[2], down = offset(random[0]), right = offset(random[1]);
  const bool flipped = random[2] >> 31 != 0;
  size_t to = 0;
  for (i64 c = 0; c < C; ++c) {
    for (i64 y = down; y < H + down; ++y) {
      for (i64 i = 0; i < W; ++i) {
        const i64 x = (flipped ? W - 1 - i : i) + right;
        const bool inside = y >= 0 && y < H && x >= 0 && x < W;
        changed_CHW[to++] = inside ? pixels_CHW[static_cast<size_t>((c * H + y) * W + x)] : u8{0};
      }
    }
  }
}

}  // namespace spillway::data
