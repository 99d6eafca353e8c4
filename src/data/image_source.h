// Images with classes, by number, read from their files as they are asked for. data/images opens them.
#pragma once
#include <string>
#include <vector>

#include "tensor/shape.h"

namespace spillway::data {

/// What images a source has, and a model reads.
struct ImageFormat {
  Shape shape_CHW;
  i64 classes = 0;
  std::vector<std::string> class_names;  // UTF-8, of each class; empty: they have none
  bool operator==(const ImageFormat&) const = default;
};

/// Thread-safe.
class ImageSource {
 public:
  virtual ~ImageSource() = default;
  virtual const std::string& name() const = 0;
  virtual i64 images() const = 0;
  virtual const ImageFormat& format() const = 0;
  /// Pixels [C, H, W] of one, and its class.
  virtual i32 read(i64 image, std::span<u8> pixels_CHW) const = 0;
};

enum class Split { training, held_out };

}  // namespace spillway::data
