#include "data/images/open_images.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/error.h"
#include "data/files/wrong_data.h"
#include "data/images/cifar.h"
#include "data/images/idx.h"
#include "data/images/image_folder.h"

namespace spillway::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKinds =
    "CIFAR-10's or CIFAR-100's binary version (its folder or a .bin file), IDX files (their folder, or NAME-images-idx3-ubyte, plain or "
    ".gz) or a folder of images with one sub-folder per class";

std::unique_ptr<ImageSource> open_one(const fs::path& path, Split split, const std::optional<i64>& side, const ImageFormat* wanted) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) refuse_missing(path);
  if (fs::is_directory(status)) {
    if (is_cifar_folder(path)) return open_cifar(path, split);
    if (const auto images = idx_images_in(path, split)) return open_idx(*images);
    if (idx_images_in(path, split == Split::training ? Split::held_out : Split::training))
      throw Error(ErrorCode::usage, fmt::format("[data] expected {}-images-idx3-ubyte in the folder {}, found none",
                                                split == Split::training ? "train" : "t10k", path.string()));
    if (is_image_folder(path)) return open_image_folder(path, side, wanted);
  }
  if (path.extension() == ".bin") return open_cifar(path, split);
  if (is_idx_images(path)) return open_idx(path);
  throw Error(ErrorCode::usage,
              fmt::format("[data] expected {}, got {}{}", kKinds, path.string(),
                          path.string().ends_with(".tar.gz") || path.extension() == ".tgz" ? ": unpack it first (tar xf)" : ""));
}

void check_goes_with(const ImageSource& source, const ImageFormat& other, const std::string& whose, bool all_classes) {
  const ImageFormat& own = source.format();
  if (own.shape_CHW != other.shape_CHW || own.classes > other.classes || (all_classes && own.classes < other.classes)) {
    throw Error(ErrorCode::data,
                fmt::format("[data] {}: expected images of shape {} in {} classes, as {}, got shape {} in {} classes", source.name(),
                            to_string(other.shape_CHW), other.classes, whose, to_string(own.shape_CHW), own.classes));
  }
  if (own.class_names.empty() || other.class_names.empty() || own.class_names == other.class_names) return;
  size_t k = 0;
  while (k < own.class_names.size() && own.class_names[k] == other.class_names[k]) ++k;
  throw Error(ErrorCode::data,
              fmt::format("[data] {}: expected the same classes in the same order as {}: the class with index {} is {} there and {} here",
                          source.name(), whose, k, other.class_names[k], k < own.class_names.size() ? own.class_names[k] : "missing"));
}

}  // namespace

std::vector<std::unique_ptr<ImageSource>> open_images(const std::vector<std::string>& paths, Split split, const ImageWish& wish) {
  std::vector<std::unique_ptr<ImageSource>> sources;
  std::optional<ImageFormat> format = wish.format;
  for (const std::string& path : paths) {
    sources.push_back(open_one(path, split, wish.side, format ? &*format : nullptr));
    if (wish.format) {
      check_goes_with(*sources.back(), *wish.format, "the model reads", false);
    } else if (format) {
      check_goes_with(*sources.back(), *format, "those of " + sources.front()->name(), true);
    }
    if (!format) format = sources.front()->format();
  }
  return sources;
}

}  // namespace spillway::data
