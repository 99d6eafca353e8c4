// IDX files of MNIST and its like (LeCun, Cortes, Burges; http://yann.lecun.com/exdb/mnist/), plain or .gz: NAME-images-idx3-ubyte, whose
// header is four big-endian 32-bit words (0x00000803, images, rows, columns) before a byte a pixel, and NAME-labels-idx1-ubyte (0x00000801,
// labels) before a byte of class an image. One channel; as many classes as the largest label says.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>

#include "data/image_source.h"

namespace spillway::data {

bool is_idx_images(const std::filesystem::path& file);
/// Of a folder: train-images-idx3-ubyte, of held_out t10k-images-idx3-ubyte; with or without .gz.
std::optional<std::filesystem::path> idx_images_in(const std::filesystem::path& folder, Split split);
/// With the labels beside them; what is packed is unpacked into memory, once. Error(data): a header that is none or says another size than
/// the file has, labels that are not as many, damage.
std::unique_ptr<ImageSource> open_idx(const std::filesystem::path& images);

}  // namespace spillway::data
