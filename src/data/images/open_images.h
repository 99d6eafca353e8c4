// Images of any kind that is read: CIFAR's binary versions (cifar.h), IDX files (idx.h), folders by class (image_folder.h). The path says
// which.
#pragma once
#include <memory>
#include <optional>

#include "data/image_source.h"

namespace spillway::data {

struct ImageWish {
  std::optional<i64> side;            // of images in folders, in pixels; empty: the first one's extents
  std::optional<ImageFormat> format;  // what a model reads: fewer classes are none the worse; names, where both have some, are the same
};

/// Each path is one source. Error(data) where images of two paths, or a path's and what is wanted, do not go together; what their own
/// headers say. Error(usage) on what is no such data.
std::vector<std::unique_ptr<ImageSource>> open_images(const std::vector<std::string>& paths, Split split, const ImageWish& wish = {});

}  // namespace spillway::data
