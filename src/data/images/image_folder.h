// Reads a folder of images with one sub-folder per class. The classes are named after their sub-folders, in byte order. The images are PNG
// and JPEG files, which are decoded when they are read (picture.h). Image numbers are shuffled across the classes, always in the same way,
// so that the last images are a sample of all classes.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>

#include "data/image_source.h"

namespace spillway::data {

/// Returns true if the folder has sub-folders.
bool is_image_folder(const std::filesystem::path& folder);
/// Opens the folder. All images are fitted to one format: to `wanted`, which a model reads, if it is given; else to `side` x `side` or the
/// first image's size, in RGB if any image is in colour. File names are kept in memory. Pixels are not read here, and headers only as far
/// as needed to find the format. Throws Error(data) if a class has no image, if an image is of an unsupported kind, or if a class name is
/// not UTF-8.
std::unique_ptr<ImageSource> open_image_folder(const std::filesystem::path& folder, std::optional<i64> side, const ImageFormat* wanted);

}  // namespace spillway::data
