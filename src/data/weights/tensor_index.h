// The tensors of a file or a folder, in its order and by their names. Values; thread-safe once all are added.
#pragma once
#include <map>

#include "data/safetensors.h"

namespace spillway::data {

class TensorIndex {
 public:
  /// `where` stands at the beginning of messages: "[torch] model.bin".
  explicit TensorIndex(std::string where) : where_(std::move(where)) {}
  /// Throws Error(data) when there is one of that name already, and when all together have more bytes than 64 bits count.
  void add(TensorInfo info);
  const std::vector<TensorInfo>& all() const { return infos_; }
  /// Null: there is none of that name.
  const TensorInfo* find(const std::string& name) const;
  /// Which one it is, of all(). The name is one that was added.
  size_t number(const std::string& name) const { return by_name_.at(name); }

 private:
  std::string where_;
  std::vector<TensorInfo> infos_;
  std::map<std::string, size_t> by_name_;
  i64 bytes_ = 0;
};

}  // namespace spillway::data
