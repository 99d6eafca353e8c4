// ImageSource is the interface to a set of labelled images. Images are addressed by index, counted from 0, and read from their files on
// demand. The functions of data/images open such sources.
#pragma once
#include <string>
#include <vector>

#include "tensor/shape.h"

namespace spillway::data {

/// The shape and the classes of images. An image source states the format that it provides; a model states the format that it expects.
struct ImageFormat {
  Shape shape_CHW;
  i64 classes = 0;
  std::vector<std::string> class_names;  // UTF-8 name of each class; empty if the classes have no names
  bool operator==(const ImageFormat&) const = default;
};

/// A set of images with class labels. Thread-safe.
class ImageSource {
 public:
  virtual ~ImageSource() = default;
  virtual const std::string& name() const = 0;
  virtual i64 images() const = 0;
  virtual const ImageFormat& format() const = 0;
  /// Copies the pixels [C, H, W] of the image with index `image` into `pixels_CHW`. Returns the index of its class.
  virtual i32 read(i64 image, std::span<u8> pixels_CHW) const = 0;
};

/// The part of a dataset: training data, or data held out for validation.
enum class Split { training, held_out };

}  // namespace spillway::data
