// TorchArchives is a set of torch.save files of which only a few are open at a time. Thread-safe once all are added.
#pragma once
#include <list>
#include <memory>

#include "data/torch/torch_archive.h"

namespace spillway::data {

class TorchArchives {
 public:
  /// Adds a file, or a range of a file, and returns the index by which open() finds it.
  size_t add(std::filesystem::path path, std::optional<TorchArchive::Range> range = {});
  /// Returns the archive with the index `file`. Opens the archive if it is not open. The errors are those of TorchArchive.
  std::shared_ptr<const TorchArchive> open(size_t file) const;

 private:
  static constexpr size_t kMostOpen = 64;  // the limit on open archives: a process can typically have only 1,024 files open
  std::vector<std::pair<std::filesystem::path, std::optional<TorchArchive::Range>>> places_;
  mutable std::mutex mutex_;
  // The open archives with their indices, most recently used first.
  mutable std::list<std::pair<size_t, std::shared_ptr<const TorchArchive>>> open_;
};

}  // namespace spillway::data
