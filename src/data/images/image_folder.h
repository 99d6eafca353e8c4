// A folder of images by class: a sub-folder a class, its name the class's, in byte order of the names; in it PNG and JPEG files, decoded
// when they are read (picture.h). The images' numbers mix the classes, the same way each time, so that the last ones are a sample of all.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>

#include "data/image_source.h"

namespace spillway::data {

/// Whether it has sub-folders.
bool is_image_folder(const std::filesystem::path& folder);
/// `wanted`: what a model reads, which all images are fitted to. Else to `side` x `side`, or the first image's size, in RGB if one of them
/// is. Keeps the files' names, and beyond what it takes to find out reads none. Error(data): a class without an image, images of a kind
/// that is not read, names that are no UTF-8.
std::unique_ptr<ImageSource> open_image_folder(const std::filesystem::path& folder, std::optional<i64> side, const ImageFormat* wanted);

}  // namespace spillway::data
