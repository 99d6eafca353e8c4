#include "data/images/picture.h"

#include <fmt/format.h>
#include <png.h>
#include <turbojpeg.h>

#include <algorithm>
#include <memory>
#include <string_view>

#include "base/error.h"
#include "data/files/file.h"

namespace spillway::data {
namespace {

namespace fs = std::filesystem;

constexpr i64 kMostFileBytes = 256 * kMiB;

[[noreturn]] void refuse(const std::string& file, const std::string& expected, const std::string& got) {
  throw Error(ErrorCode::data, fmt::format("[data] {}: expected {}, got {}", file, expected, got));
}

// Throws if a picture of this size is too large. The readers call it before they allocate memory for the picture.
void check_size(const std::string& file, i64 height, i64 width) {
  if (height >= 1 && width >= 1 && height <= kMostSide && width <= kMostSide && height * width <= kMostPixels) return;
  refuse(file, fmt::format("a picture of at most {} x {} and {} pixels", kMostSide, kMostSide, kMostPixels),
         fmt::format("{} x {}", height, width));
}

Picture decode_png(std::span<const u8> bytes, const std::string& file, Part part) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  const std::unique_ptr<png_image, void (*)(png_image*)> freed(&image, png_image_free);
  const auto damaged = [&] { refuse(file, "a PNG image", fmt::format("damage: {}", image.message)); };
  if (!png_image_begin_read_from_memory(&image, bytes.data(), bytes.size())) damaged();
  image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
  Picture picture{image.height, image.width, image.format & PNG_FORMAT_FLAG_COLOR ? 3 : 1, {}};
  check_size(file, picture.height, picture.width);
  if (part == Part::header) return picture;
  // The picture is decoded with an alpha channel, which the code below drops.
  // Without an alpha channel, libpng would blend the pixels with a background.
  image.format = picture.channels == 3 ? PNG_FORMAT_RGBA : PNG_FORMAT_GA;
  std::vector<u8> pixels(PNG_IMAGE_SIZE(image));
  if (!png_image_finish_read(&image, nullptr, pixels.data(), 0, nullptr)) damaged();
  const auto C = static_cast<size_t>(picture.channels);
  picture.pixels_HWC.resize(pixels.size() / (C + 1) * C);
  for (size_t from = 0, to = 0; from < pixels.size(); from += C + 1, to += C)
    std::copy_n(pixels.begin() + static_cast<std::ptrdiff_t>(from), C, picture.pixels_HWC.begin() + static_cast<std::ptrdiff_t>(to));
  return picture;
}

Picture decode_jpeg(std::span<const u8> bytes, const std::string& file, Part part) {
  const std::unique_ptr<void, int (*)(tjhandle)> reader(tjInitDecompress(), tjDestroy);
  require(reader != nullptr, "[data] libjpeg-turbo cannot be initialized");
  const auto damaged = [&] { refuse(file, "a JPEG image", fmt::format("damage: {}", tjGetErrorStr2(reader.get()))); };
  int width = 0, height = 0, sampling = 0, colours = 0;
  if (tjDecompressHeader3(reader.get(), bytes.data(), bytes.size(), &width, &height, &sampling, &colours) != 0) damaged();
  if (colours == TJCS_CMYK || colours == TJCS_YCCK) refuse(file, "a JPEG image in grey or RGB", "CMYK");
  check_size(file, height, width);
  Picture picture{height, width, colours == TJCS_GRAY ? 1 : 3, {}};
  if (part == Part::header) return picture;
  picture.pixels_HWC.resize(static_cast<size_t>(picture.height * picture.width * picture.channels));
  const int status = tjDecompress2(reader.get(), bytes.data(), bytes.size(), picture.pixels_HWC.data(), width, 0, height,
                                   colours == TJCS_GRAY ? TJPF_GRAY : TJPF_RGB, TJFLAG_LIMITSCANS);
  // tjGetErrorStr2() returns libjpeg's last message. A warning about extraneous bytes between parts of the file is ignored: cameras write
  // such bytes, and no pixel is damaged.
  if (status != 0 && std::string_view(tjGetErrorStr2(reader.get())).find(" extraneous bytes before marker") == std::string_view::npos)
    damaged();
  return picture;
}

bool begins(std::span<const u8> bytes, std::string_view with) {
  return bytes.size() >= with.size() &&
         std::equal(with.begin(), with.end(), bytes.begin(), [](char c, u8 b) { return static_cast<u8>(c) == b; });
}

}  // namespace

bool is_picture_name(const fs::path& file) {
  std::string end = file.extension().string();
  std::ranges::transform(end, end.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return end == ".png" || end == ".jpg" || end == ".jpeg";
}

Picture decode_picture(std::span<const u8> bytes, const std::string& file, Part part) {
  if (begins(bytes, "\x89PNG\r\n\x1a\n")) return decode_png(bytes, file, part);
  if (begins(bytes, "\xff\xd8\xff")) return decode_jpeg(bytes, file, part);
  refuse(file, "a PNG or JPEG image", bytes.empty() ? "an empty file" : "a file whose first bytes are of neither format");
}

Picture read_picture(const fs::path& path, Part part) {
  const File file = File::open(path);
  if (file.size_bytes() > kMostFileBytes) refuse(path.string(), "an image of at most 256 MiB", fmt::format("{} bytes", file.size_bytes()));
  std::vector<u8> bytes(static_cast<size_t>(file.size_bytes()));
  file.read(0, std::as_writable_bytes(std::span(bytes)));
  return decode_picture(bytes, path.string(), part);
}

}  // namespace spillway::data
