// TorchTree is the pickle tree of a torch.save file. It recognises the tensors
// in the tree, wherever they are. The errors are those of torch_file.h.
#pragma once
#include <optional>

#include "data/safetensors/safetensors.h"
#include "data/torch/pickle_tree.h"
#include "data/torch/torch_archive.h"

namespace spillway::data {

/// Describes where a tensor's elements are in its storage. Offset, sizes and strides have been checked against the storage's size.
struct TorchTensor {
  TorchArchive::Member storage;
  DType dtype = DType::f32;
  std::string_view foreign;  // the name of the dtype, such as "I8", if this program has no tensors of it; otherwise empty
  i64 offset = 0;            // the index of the tensor's first element within the storage
  std::vector<i64> sizes, strides;
  i64 elems = 0;

  i64 storage_elems() const { return storage.bytes / size_of(dtype); }
  /// A contiguous run of elements: `axes` is the number of trailing axes that the run spans, and `elems` is its number of elements.
  struct Run {
    size_t axes = 0;
    i64 elems = 1;
  };
  Run run() const;
  bool is_contiguous() const { return run().elems == elems; }
  TensorInfo info(const std::string& name) const;
};

/// Copies elements [begin, begin + out.size()) of a floating-point tensor, widened to fp64. The elements are counted in row-major order,
/// whatever the tensor's strides. A tensor may repeat elements of its storage (as expand() does), but it may have at most 16 times as many
/// elements as the storage, or at most 32 million elements if the storage is small. Without this limit, a file of a kilobyte could keep a
/// reader busy for ever. Thread-safe.
void read_wide(const TorchArchive& archive, const TorchTensor& tensor, i64 begin, std::span<double> out);

/// Returns true if `global` is one of the Python globals that occur in a pickle of tensors.
bool belongs_to_tensors(std::string_view global);

class TorchTree : public PickleTree {
 public:
  TorchTree(const TorchArchive& archive, bool (*known)(std::string_view global), std::string_view cure);
  const TorchArchive& archive() const { return archive_; }
  /// Returns the tensor that a node describes, or nothing if the node is something else. Error messages call the tensor `name`.
  std::optional<TorchTensor> tensor(const PickleNode& node, std::string_view name) const;

 private:
  TorchTensor rebuilt(const PickleNode& arguments, std::string_view name) const;
  void check_within(TorchTensor& tensor, std::string_view name) const;

  const TorchArchive& archive_;
};

}  // namespace spillway::data
