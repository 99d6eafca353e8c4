// Reads CIFAR-10 and CIFAR-100 in their binary versions (Krizhevsky 2009;
// https://www.cs.toronto.edu/~kriz/cifar.html). A record consists of a class byte and 3 x 32 x 32 pixel bytes. In
// CIFAR-100, another byte, the coarse class, precedes the class byte. Only the fine class in the class byte is used.
#pragma once
#include <filesystem>
#include <memory>

#include "data/loader/image_source.h"

namespace spillway::data {

/// Returns true if the folder holds files of CIFAR-10 or CIFAR-100, including those of the Python version.
bool is_cifar_folder(const std::filesystem::path& folder);
/// Opens a folder or one file. A CIFAR-10 folder has data_batch_*.bin for training and test_batch.bin for validation (Split::held_out); a
/// CIFAR-100 folder has train.bin and test.bin. A single file belongs to CIFAR-100 if its name says so, or if only CIFAR-100's record size
/// divides the file's size. Class names come from batches.meta.txt or fine_label_names.txt in the folder. Throws Error(data) with file and
/// offset if a class is out of range or the last record is short, and Error(usage) if the folder lacks the files of the split.
std::unique_ptr<ImageSource> open_cifar(const std::filesystem::path& path, Split split);

}  // namespace spillway::data
