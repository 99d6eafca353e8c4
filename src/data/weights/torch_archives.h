// Many files of torch.save's, of which a few are open at a time. Thread-safe once all are added.
#pragma once
#include <list>
#include <memory>

#include "data/weights/torch_archive.h"

namespace spillway::data {

class TorchArchives {
 public:
  /// Of a file, or of a part of one.
  size_t add(std::filesystem::path path, std::optional<TorchArchive::Range> range = {});
  /// One that was added. Errors are TorchArchive's.
  std::shared_ptr<const TorchArchive> open(size_t file) const;

 private:
  static constexpr size_t kMostOpen = 64;  // of a process that may have 1,024 files
  std::vector<std::pair<std::filesystem::path, std::optional<TorchArchive::Range>>> places_;
  mutable std::mutex mutex_;
  mutable std::list<std::pair<size_t, std::shared_ptr<const TorchArchive>>> open_;  // the last used first
};

}  // namespace spillway::data
