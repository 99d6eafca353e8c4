#include "data/weights/tensor_index.h"

#include <fmt/format.h>

#include "base/error.h"
#include "data/files/file.h"

namespace spillway::data {

void TensorIndex::add(TensorInfo info) {
  if (__builtin_add_overflow(bytes_, info.bytes(), &bytes_)) {
    throw Error(ErrorCode::data, fmt::format("{}: the tensors up to {} have more than 2^63 bytes in total", where_, in_quotes(info.name)));
  }
  if (!by_name_.emplace(info.name, infos_.size()).second) {
    throw Error(ErrorCode::data, fmt::format("{}: two tensors have the name {}", where_, in_quotes(info.name)));
  }
  infos_.push_back(std::move(info));
}

const TensorInfo* TensorIndex::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &infos_[found->second];
}

}  // namespace spillway::data
