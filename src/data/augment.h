// Random changes to images in training. Pure functions.
#pragma once
#include <array>
#include <span>

#include "base/types.h"
#include "tensor/shape.h"

namespace spillway::data {

/// torchvision's RandomCrop(size, padding=4) and RandomHorizontalFlip(): a border of 4 black pixels, a window of the image's own size at
/// one of 9 x 9 places, mirrored in half of the cases. `random`: the first three words decide.
void crop_and_flip(std::span<const u8> pixels_CHW, const Shape& shape_CHW, const std::array<u32, 4>& random, std::span<u8> changed_CHW);

}  // namespace spillway::data
