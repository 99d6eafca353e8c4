// TorchArchives is a set of torch.save files of which only a few are open at a time. Thread-safe once all are added.
#pragma once
#include <list>
#include <memory>

#include "data/weights/torch_archive.h"

namespace spillway::data {

class TorchArchives {
 public:
  /// Adds a file, or a part of a file, and returns its number.
  size_t add(std::filesystem::path path, std::optional<TorchArchive::Range> range = {});
  /// Returns the archive with that number, opening it if needed. Errors are those of TorchArchive.
  std::shared_ptr<const TorchArchive> open(size_t file) const;

 private:
  static constexpr size_t kMostOpen = 64;  // few, because a process can typically have only 1,024 files open
  std::vector<std::pair<std::filesystem::path, std::optional<TorchArchive::Range>>> places_;
  mutable std::mutex mutex_;
  mutable std::list<std::pair<size_t, std::shared_ptr<const TorchArchive>>> open_;  // the open archives, most recently used first
};

}  // namespace spillway::data
