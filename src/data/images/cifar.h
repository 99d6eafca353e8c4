// CIFAR-10 and CIFAR-100, binary versions (Krizhevsky 2009; https://www.cs.toronto.edu/~kriz/cifar.html): records of a byte of class and
// 3 x 32 x 32 of pixels; CIFAR-100's have a byte of coarse class before that of the fine one, which is the class here.
#pragma once
#include <filesystem>
#include <memory>

#include "data/image_source.h"

namespace spillway::data {

/// Whether a folder has files of either, of the Python version too.
bool is_cifar_folder(const std::filesystem::path& folder);
/// A folder of data_batch_*.bin, of which held_out takes the test_batch.bin instead, or of train.bin and test.bin; or one file, CIFAR-100's
/// by its name or where its size is a multiple of those records alone. Names of classes are those of the folder's batches.meta.txt or
/// fine_label_names.txt. Error(data) with file and offset where a class is none of them or the last record is short, Error(usage) where the
/// folder lacks the split.
std::unique_ptr<ImageSource> open_cifar(const std::filesystem::path& path, Split split);

}  // namespace spillway::data
