// Reads IDX files, the format of MNIST and similar datasets (LeCun, Cortes, Burges; http://yann.lecun.com/exdb/mnist/), plain or .gz.
// NAME-images-idx3-ubyte has a header of four big-endian 32-bit words (0x00000803, images, rows, columns) and then one byte per pixel.
// NAME-labels-idx1-ubyte has a header of two such words (0x00000801, labels) and then one class byte per image. Images have one channel.
// The number of classes is the largest label plus one.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>

#include "data/loader/image_source.h"

namespace spillway::data {

bool is_idx_images(const std::filesystem::path& file);
/// Returns the file of images in a folder, if there is one. The file is train-images-idx3-ubyte,
/// or for validation (Split::held_out) t10k-images-idx3-ubyte, with or without .gz.
std::optional<std::filesystem::path> idx_images_in(const std::filesystem::path& folder, Split split);
/// Opens a file of images and the file of labels next to it. Compressed files are decompressed into memory once. Throws Error(data) if a
/// header is invalid or does not match the file's size, if there are not as many labels as images, or if a file is damaged.
std::unique_ptr<ImageSource> open_idx(const std::filesystem::path& images);

}  // namespace spillway::data
