// Data augmentation: random crops and flips of training images. Pure functions.
#pragma once
#include <array>
#include <span>

#include "base/random.h"
#include "tensor/shape.h"

namespace spillway::data {

/// Options of the augmentation. Each image goes through crop_and_flip() with the random numbers philox(key, 0, row). `row` is the index of
/// the image's row in the data of the whole run, counted from 0.
struct Augmentation {
  i64 border = 4;
  RandomKey key;
};

/// Crops and flips an image as torchvision's RandomCrop(size, padding=border) and RandomHorizontalFlip() do. First the image gets a
/// black border of `border` pixels. Then a window of the image's own size is cut out at one of (2 border + 1)^2 positions, and half
/// of these windows are mirrored. The first three words of `random` decide the vertical offset, the horizontal offset and the flip.
void crop_and_flip(std::span<const u8> pixels_CHW, const Shape& shape_CHW, i64 border, const std::array<u32, 4>& random,
                   std::span<u8> changed_CHW);

}  // namespace spillway::data
