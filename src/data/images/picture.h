// A decoded picture in memory, and readers of PNG and JPEG files (libpng, libjpeg-turbo). Functions are thread-safe. Legend: C = 1 (grey)
// or 3 (RGB).
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "tensor/shape.h"

namespace spillway::data {

constexpr i64 kMostSide = 16384, kMostPixels = i64{1} << 26;  // the limits for one picture: pixels along a side, and pixels in total

struct Picture {
  i64 height = 0, width = 0, channels = 0;
  std::vector<u8> pixels_HWC;  // the pixels; empty if only the header was read
};

/// Returns true if the file name has an ending of PNG or JPEG files.
bool is_picture_name(const std::filesystem::path& file);

enum class Part { header, all };
/// Decodes a PNG or JPEG picture. The first bytes tell the format; the file's name does not matter. Colours are
/// sRGB. 16-bit channels are reduced to 8 bits, transparency is dropped, and EXIF orientation is ignored. Throws
/// an Error(data) that names `file` if the data is of neither format, too large, in CMYK, cut short or damaged.
Picture decode_picture(std::span<const u8> bytes, const std::string& file, Part part = Part::all);
/// Reads and decodes a picture file of at most 256 MiB.
Picture read_picture(const std::filesystem::path& file, Part part = Part::all);

/// Scales the picture until it just covers H x W, and crops the centre. For N x N the result is that of torchvision's
/// Resize(N) and CenterCrop(N). Scaling is bilinear; when it shrinks the picture, it uses antialiasing, as Pillow's
/// BILINEAR does. RGB becomes grey by the ITU-R 601-2 luma. Grey becomes RGB by repeating its value.
void fit(const Picture& picture, const Shape& shape_CHW, std::span<u8> pixels_CHW);

}  // namespace spillway::data
