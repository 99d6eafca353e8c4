// TensorIndex holds the descriptions of the tensors of a file or folder. It lists them in the order
// in which they were added, and finds one by its name. Thread-safe once all tensors are added.
#pragma once
#include <map>

#include "data/safetensors.h"

namespace spillway::data {

class TensorIndex {
 public:
  /// Creates an empty index. `where` begins every error message, for example "[torch] model.bin".
  explicit TensorIndex(std::string where) : where_(std::move(where)) {}
  /// Adds a tensor. Throws Error(data) if another tensor has its name, or if the total bytes of all tensors overflow 64 bits.
  void add(TensorInfo info);
  const std::vector<TensorInfo>& all() const { return infos_; }
  /// Returns the tensor of that name, or null if there is no such tensor.
  const TensorInfo* find(const std::string& name) const;
  /// Returns the index in all() of the tensor with this name. A tensor of that name must have been added.
  size_t number(const std::string& name) const { return by_name_.at(name); }

 private:
  std::string where_;
  std::vector<TensorInfo> infos_;
  std::map<std::string, size_t> by_name_;
  i64 bytes_ = 0;
};

}  // namespace spillway::data
