// Reads CIFAR-10 and CIFAR-100 in their binary versions (Krizhevsky 2009; https://www.cs.toronto.edu/~kriz/cifar.html). A record is a class
// byte and 3 x 32 x 32 pixel bytes. Records of CIFAR-100 begin with another byte, the coarse class; the fine class is the one used here.
#pragma once
#include <filesystem>
#include <memory>

#include "data/image_source.h"

namespace spillway::data {

/// Returns true if the folder holds files of CIFAR-10 or CIFAR-100, including those of the Python version.
bool is_cifar_folder(const std::filesystem::path& folder);
/// Opens a folder or one file. A CIFAR-10 folder has data_batch_*.bin for training and test_batch.bin for validation (Split::held_out); a
/// CIFAR-100 folder has train.bin and test.bin. A single file is CIFAR-100's by its name, or if only CIFAR-100's record size divides its
/// size. Class names come from the folder's batches.meta.txt or fine_label_names.txt. Throws Error(data) with file and offset if a class is
/// out of range or the last record is short, and Error(usage) if the folder lacks the split.
std::unique_ptr<ImageSource> open_cifar(const std::filesystem::path& path, Split split);

}  // namespace spillway::data
