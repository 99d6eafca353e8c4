// TorchFile reads the tensors of a file that torch.save wrote, such as pytorch_model.bin. Since PyTorch 1.6 this is a zip archive: its
// data.pkl is a pickle that names the tensors, and each storage has a member with its bytes. The input is untrusted: the pickle is read and
// never run (pickle/pickle.h); one that refers to anything but tensors is refused with the name of what it refers to; every size, stride
// and offset is checked against the storage's member. Reading streams: a tensor is never held whole. Errors: Error(data) "[torch] file:
// ...".
#pragma once
#include <memory>

#include "data/safetensors.h"

namespace spillway::data {

/// Returns true if the file begins like a torch.save file (a zip archive).
bool is_torch_file(const std::filesystem::path& path);

class TorchFile {
 public:
  explicit TorchFile(const std::filesystem::path& path);
  TorchFile(TorchFile&&) noexcept;
  ~TorchFile();
  /// Returns the tensors in the file's order. Keys of nested dictionaries are joined by dots: "module.wte.weight". Values that are no
  /// tensors are left out.
  const std::vector<TensorInfo>& tensors() const;
  const TensorInfo* find(const std::string& name) const;
  /// Copies elements [begin, begin + out.size()) of a floating-point tensor, in row-major order whatever its strides, widened to fp64.
  /// Thread-safe.
  void read_wide(const TensorInfo& tensor, i64 begin, std::span<double> out) const;
  /// Copies the stored bytes of the elements from `begin` on. Returns false and reads nothing if the tensor is not contiguous in its
  /// storage. Thread-safe.
  bool read_bytes(const TensorInfo& tensor, i64 begin, std::span<std::byte> out) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spillway::data
