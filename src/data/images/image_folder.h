// Reads a folder of images with one sub-folder per class. The classes are named after their sub-folders and are in byte order of these
// names. The images are PNG and JPEG files, which are decoded when they are read (picture.h). The images of all classes are mixed: their
// indices are a fixed permutation of the files. So the last images, which become the validation data, are a sample of all classes.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>

#include "data/loader/image_source.h"

namespace spillway::data {

/// Returns true if the folder has sub-folders.
bool is_image_folder(const std::filesystem::path& folder);
/// Opens the folder. All images are scaled to one format. If `wanted` is given, that is the format, which a model reads.
/// Otherwise the images are `side` x `side`, or without `side` of the first image's size, and they are RGB if any image is
/// in colour. File names are kept in memory. Pixels are not read yet; image headers are read only if the format depends on
/// them. Throws Error(data) if a class has no image, if an image is of an unsupported kind, or if a class name is not UTF-8.
std::unique_ptr<ImageSource> open_image_folder(const std::filesystem::path& folder, std::optional<i64> side, const ImageFormat* wanted);

}  // namespace spillway::data
