#include "data/safetensors/tensor_reader.h"

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

void TensorReader::read_wide(const TensorInfo& tensor, i64 begin, std::span<double> out) const {
  if (!tensor.foreign.empty() || !is_floating(tensor.dtype)) {
    throw Error(ErrorCode::data, fmt::format("{}: tensor {}: expected floating-point numbers, got {}", index_.where(),
                                             in_quotes(tensor.name), tensor.foreign.empty() ? to_string(tensor.dtype) : tensor.foreign));
  }
  widen(tensor, begin, out);
}

}  // namespace spillway::data
