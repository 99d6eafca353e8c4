// TensorIndex holds the descriptions of the tensors of a file or folder. It lists them in the order
// in which they were added, and finds one by its name. Thread-safe once all tensors are added.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace spillway::data {

struct TensorInfo {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  i64 begin = 0, end = 0;  // byte range within the data section of the file
  /// If this program does not support the tensor's dtype or rank, a text such as "I16 [2, 3]"; otherwise empty. If it is not empty, dtype
  /// and shape describe the raw bytes.
  std::string foreign = {};
  i64 bytes() const { return end - begin; }
};

class TensorIndex {
 public:
  /// `where` begins every error message, for example "[torch] model.bin".
  explicit TensorIndex(std::string where = {}) : where_(std::move(where)) {}
  const std::string& where() const { return where_; }
  /// Adds a tensor. Throws Error(data) if another tensor has the same name, or if the total bytes of all tensors overflow 64 bits.
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
