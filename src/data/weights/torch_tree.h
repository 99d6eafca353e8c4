// What a file of torch.save's holds, as the tree of its pickle (pickle/pickle.h: read, never run) and the tensors in it, wherever they lie
// in the tree. Errors as torch_file.h's.
#pragma once
#include <optional>

#include "data/pickle/pickle.h"
#include "data/safetensors.h"
#include "data/weights/torch_archive.h"

namespace spillway::data {

/// Where a tensor's elements lie in its storage, checked against that.
struct TorchTensor {
  TorchArchive::Member storage;
  DType dtype = DType::f32;
  std::string_view foreign;  // "I8": a type that no tensor here has
  i64 offset = 0;            // elements
  std::vector<i64> sizes, strides;
  i64 elems = 0;

  TensorInfo info(const std::string& name) const;
};

/// Elements [begin, begin + out.size()) of a floating tensor, in row-major order whatever its strides, widened to fp64. Thread-safe.
void read_wide(const TorchArchive& archive, const TorchTensor& tensor, i64 begin, std::span<double> out);

/// What a pickle of tensors asks for.
bool belongs_to_tensors(std::string_view global);

class TorchTree {
 public:
  /// Refuses a pickle that asks for a global which is not `known`; `cure`: what to do then.
  TorchTree(const TorchArchive& archive, bool (*known)(std::string_view global), std::string_view cure);

  const TorchArchive& archive() const { return archive_; }
  const PickleNode& root() const { return pickle_.at(pickle_.root()); }
  const PickleNode& at(PickleRef ref) const { return pickle_.at(ref); }

  /// Of dictionaries, ordered ones too.
  bool is_dictionary(const PickleNode& node) const;
  /// key, value, key, value ..; of anything else none.
  std::span<const PickleRef> entries(const PickleNode& node) const;
  /// Null where `node` is null, no dictionary, or has no such key.
  const PickleNode* find(const PickleNode* node, std::string_view key) const;

  /// None where the node is something else; `name` is for messages.
  std::optional<TorchTensor> tensor(const PickleNode& node, const std::string& name) const;
  /// A tuple, a list, or torch.Size of one.
  std::vector<i64> sizes(const PickleNode& node, const std::string& name) const;

 private:
  [[noreturn]] void wrong(const std::string& tensor, const std::string& why) const;
  bool calls(const PickleNode& node, std::string_view global) const;
  const PickleNode& argument(const PickleNode& arguments, size_t index, const std::string& tensor) const;
  i64 size(const PickleNode& node, const std::string& tensor) const;
  TorchTensor rebuilt(const PickleNode& arguments, const std::string& name) const;
  void check_within(TorchTensor& tensor, const std::string& name) const;

  const TorchArchive& archive_;
  const Pickle pickle_;
};

}  // namespace spillway::data
