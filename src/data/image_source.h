// Images with classes, by number, read from their files as they are asked for.
#pragma once
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tensor/shape.h"

namespace spillway::data {

/// Thread-safe.
class ImageSource {
 public:
  virtual ~ImageSource() = default;
  virtual const std::string& name() const = 0;
  virtual i64 images() const = 0;
  virtual const Shape& shape_CHW() const = 0;
  /// Pixels [C, H, W] of one, and its class.
  virtual i32 read(i64 image, std::span<u8> pixels_CHW) const = 0;
};

enum class Split { training, held_out };

/// CIFAR-10's binary version (Krizhevsky 2009; https://www.cs.toronto.edu/~kriz/cifar.html): records of one byte of class and 3 x 32 x 32
/// of pixels. Each path is one source: a folder of data_batch_*.bin, of which held_out takes the test_batch.bin instead; or one file.
/// Error(data) with file and offset where a class is none of the ten or the last record is short, Error(usage) on what is no such data.
std::vector<std::unique_ptr<ImageSource>> open_cifar10(const std::vector<std::string>& paths, Split split);

}  // namespace spillway::data
