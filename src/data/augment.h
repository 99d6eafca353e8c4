// Random changes to images in training. Pure functions.
#pragma once
#include <array>
#include <span>

#include "base/random.h"
#include "tensor/shape.h"

namespace spillway::data {

/// What is done to them: crop_and_flip() by philox(key, 0, a row's number over the run).
struct Augmentation {
  i64 border = 4;
  RandomKey key;
};

/// torchvision's RandomCrop(size, padding=border) and RandomHorizontalFlip(): black pixels around, a window of the image's own size at one
/// of (2 border + 1)^2 places, mirrored in half of the cases. `random`: the first three words decide.
void crop_and_flip(std::span<const u8> pixels_CHW, const Shape& shape_CHW, i64 border, const std::array<u32, 4>& random,
                   std::span<u8> changed_CHW);

}  // namespace spillway::data
