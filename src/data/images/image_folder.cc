#include "data/images/image_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/random.h"
#include "base/utf8.h"
#include "data/files/file.h"
#include "data/images/picture.h"

namespace spillway::data {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostClasses = 1'000'000;

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

// Returns, in byte order, the names of the entries of `folder`: of its sub-folders if `folders` is true, and of its files otherwise.
std::vector<std::string> names_in(const fs::path& folder, bool folders) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (!is_hidden(entry.path()) && entry.is_directory(error) == folders) names.push_back(entry.path().filename().string());
  }
  if (error) throw Error(ErrorCode::data, fmt::format("[data] cannot list the folder {}: {}", folder.string(), error.message()));
  std::ranges::sort(names);
  return names;
}

// Returns true if the name is that of an image format which this program does not read. Such files are refused, because skipping them
// silently would lose data.
bool is_foreign_image(const std::string& name) {
  constexpr std::array kEnds{".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".jp2", ".avif", ".heic"};
  return std::ranges::any_of(kEnds, [&](const char* end) { return name.ends_with(end); });
}

class ImageFolder final : public ImageSource {
 public:
  ImageFolder(const fs::path& folder, std::optional<i64> side, const ImageFormat* wanted) : folder_(folder), name_(folder.string()) {
    format_.class_names = names_in(folder, true);
    if (format_.class_names.size() > kMostClasses)
      throw Error(ErrorCode::data,
                  fmt::format("[data] {}: expected at most {} classes, got {}", name_, kMostClasses, format_.class_names.size()));
    for (const std::string& name : format_.class_names) list(name);
    format_.classes = std::ssize(format_.class_names);
    format_.shape_CHW = wanted ? wanted->shape_CHW : own_shape(side);
  }

  const std::string& name() const override { return name_; }
  i64 images() const override { return std::ssize(files_); }
  const ImageFormat& format() const override { return format_; }

  i32 read(i64 image, std::span<u8> pixels_CHW) const override {
    require(image >= 0 && image < images(), "[data] expected the index of an image");
    const auto file = static_cast<i64>(permute(RandomKey().derive("folder of images"), files_.size(), static_cast<u64>(image)));
    fit(read_picture(path(file)), format_.shape_CHW, pixels_CHW);
    return class_of(file);
  }

 private:
  void list(const std::string& name) {
    if (!is_utf8(name) || std::ranges::any_of(name, [](unsigned char c) { return c < ' ' || c == 127; }))
      throw Error(ErrorCode::data,
                  fmt::format("[data] {}: expected class names in UTF-8 without control characters, got {}", name_, in_quotes(name)));
    firsts_.push_back(images());
    for (std::string& file : names_in(folder_ / name, false)) {
      if (is_foreign_image(file))
        throw Error(ErrorCode::data, fmt::format("[data] {}: expected a PNG or JPEG image, got another format: convert the file",
                                                 (folder_ / name / file).string()));
      if (is_picture_name(file)) files_.push_back(std::move(file));
    }
    if (firsts_.back() < images()) return;
    const auto inner = names_in(folder_ / name, true);
    throw Error(
        ErrorCode::data,
        fmt::format("[data] {}: expected PNG or JPEG images of the class {}, got none{}", (folder_ / name).string(), in_quotes(name),
                    inner.empty() ? ": remove the folder, or put images into it"
                                  : fmt::format(" but folders: did you mean to give {}?", (folder_ / name).string())));
  }

  i32 class_of(i64 file) const { return static_cast<i32>(std::ranges::upper_bound(firsts_, file) - firsts_.begin()) - 1; }
  fs::path path(i64 file) const {
    return folder_ / format_.class_names[static_cast<size_t>(class_of(file))] / files_[static_cast<size_t>(file)];
  }

  Shape own_shape(std::optional<i64> side) const {
    const Picture first = read_picture(path(0), Part::header);
    i64 channels = first.channels;
    for (i64 file = 1; channels == 1 && file < images(); ++file) channels = read_picture(path(file), Part::header).channels;
    return {channels, side.value_or(first.height), side.value_or(first.width)};
  }

  const fs::path folder_;
  const std::string name_;
  std::vector<std::string> files_;
  std::vector<i64> firsts_;  // for each class, the index of its first file
  ImageFormat format_;
};

}  // namespace

bool is_image_folder(const fs::path& folder) { return !names_in(folder, true).empty(); }

std::unique_ptr<ImageSource> open_image_folder(const fs::path& folder, std::optional<i64> side, const ImageFormat* wanted) {
  return std::make_unique<ImageFolder>(folder, side, wanted);
}

}  // namespace spillway::data
