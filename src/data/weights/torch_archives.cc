#include "data/weights/torch_archives.h"

#include <algorithm>

namespace spillway::data {

size_t TorchArchives::add(std::filesystem::path path) {
  paths_.push_back(std::move(path));
  return paths_.size() - 1;
}

std::shared_ptr<const TorchArchive> TorchArchives::open(size_t file) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(open_, file, &decltype(open_)::value_type::first);
  if (found != open_.end()) {
    open_.splice(open_.begin(), open_, found);
  } else {
    open_.emplace_front(file, std::make_shared<const TorchArchive>(paths_.at(file)));
    if (open_.size() > kMostOpen) open_.pop_back();
  }
  return open_.front().second;
}

}  // namespace spillway::data
