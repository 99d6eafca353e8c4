// Opens image datasets of any supported kind: CIFAR's binary versions (cifar.h), IDX files (idx.h), and folders with one sub-folder per
// class (image_folder.h). The kind is recognised from the path.
#pragma once
#include <memory>
#include <optional>

#include "data/loader/image_source.h"

namespace spillway::data {

/// The requirements that images must meet when they are opened.
struct ImageWish {
  // The side in pixels to which the images of an image folder are scaled.
  // If `side` has no value, the size of the folder's first image is used.
  std::optional<i64> side;
  // The format that a model reads. A source may have fewer classes than the model. If the source and the model both have class names, the
  // names must agree.
  std::optional<ImageFormat> format;
};

/// Opens each path as one source. Throws Error(data) if two sources have different formats, if a source does not fit `wish`, or if a file
/// is damaged. Throws Error(usage) if a path is not an image dataset.
std::vector<std::unique_ptr<ImageSource>> open_images(const std::vector<std::string>& paths, Split split, const ImageWish& wish = {});

}  // namespace spillway::data
