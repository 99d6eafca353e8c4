// What a file of torch.save's holds: the tree of its pickle, and the tensors in it, wherever they lie in the tree. Errors as
// torch_file.h's.
#pragma once
#include <optional>

#include "data/safetensors.h"
#include "data/weights/pickle_tree.h"
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

  i64 storage_elems() const { return storage.bytes / size_of(dtype); }
  /// From how many axes on, counted from the last, elements lie one behind the other, and how many elements that are.
  struct Run {
    size_t axes = 0;
    i64 elems = 1;
  };
  Run run() const;
  bool is_contiguous() const { return run().elems == elems; }
  TensorInfo info(const std::string& name) const;
};

/// Elements [begin, begin + out.size()) of a floating tensor, in row-major order whatever its strides, widened to fp64. One that repeats
/// elements of its storage (expand) is read up to 16 times as many, of a small storage up to 32 million: else a file of a kilobyte could be
/// read for ever. Thread-safe.
void read_wide(const TorchArchive& archive, const TorchTensor& tensor, i64 begin, std::span<double> out);

/// What a pickle of tensors asks for.
bool belongs_to_tensors(std::string_view global);

class TorchTree : public PickleTree {
 public:
  TorchTree(const TorchArchive& archive, bool (*known)(std::string_view global), std::string_view cure);
  const TorchArchive& archive() const { return archive_; }
  /// None where the node is something else; `name` is for messages.
  std::optional<TorchTensor> tensor(const PickleNode& node, std::string_view name) const;

 private:
  TorchTensor rebuilt(const PickleNode& arguments, std::string_view name) const;
  void check_within(TorchTensor& tensor, std::string_view name) const;

  const TorchArchive& archive_;
};

}  // namespace spillway::data
