// A picture in memory, and PNG and JPEG files of it (libpng, libjpeg-turbo). Functions are thread-safe. Legend: C = 1 (grey) or 3 (RGB).
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "tensor/shape.h"

namespace spillway::data {

constexpr i64 kMostSide = 16384, kMostPixels = i64{1} << 26;  // of one picture

struct Picture {
  i64 height = 0, width = 0, channels = 0;
  std::vector<u8> pixels_HWC;  // empty: its header alone was read
};

/// Whether a file's name ends as PNG's and JPEG's do.
bool is_picture_name(const std::filesystem::path& file);

enum class Part { header, all };
/// By its first bytes PNG or JPEG, whatever its name. Colours are sRGB, 16 bits are made 8, transparency is left out, an orientation that
/// EXIF says is not followed. Error(data) naming `file`: it is neither, too large, in CMYK, cut short or damaged.
Picture decode_picture(std::span<const u8> bytes, const std::string& file, Part part = Part::all);
/// Of a file of at most 256 MiB.
Picture read_picture(const std::filesystem::path& file, Part part = Part::all);

/// Scaled until it just covers H x W (bilinear, widened by the factor where it shrinks, as Pillow's BILINEAR) and cut to its middle, as
/// torchvision's Resize(N) and CenterCrop(N) do for N x N. RGB becomes grey by ITU-R 601-2's luma; grey is repeated.
void fit(const Picture& picture, const Shape& shape_CHW, std::span<u8> pixels_CHW);

}  // namespace spillway::data
