#include "data/torch/torch_archives.h"

#include <algorithm>

namespace spillway::data {

size_t TorchArchives::add(std::filesystem::path path, std::optional<TorchArchive::Range> range) {
  places_.emplace_back(std::move(path), range);
  return places_.size() - 1;
}

std::shared_ptr<const TorchArchive> TorchArchives::open(size_t file) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(open_, file, &decltype(open_)::value_type::first);
  if (found != open_.end()) {
    open_.splice(open_.begin(), open_, found);
  } else {
    const auto& [path, range] = places_.at(file);
    open_.emplace_front(file, std::make_shared<const TorchArchive>(path, range));
    if (open_.size() > kMostOpen) open_.pop_back();
  }
  return open_.front().second;
}

}  // namespace spillway::data
