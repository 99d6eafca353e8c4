// TorchFile reads the tensors of a file that torch.save wrote, such as pytorch_model.bin. Since PyTorch 1.6 such a file is a
// zip archive. Its member data.pkl is a pickle that names the tensors, and each storage has a member with its bytes. The
// input is untrusted. The pickle is read and never run (pickle/pickle.h). If the pickle refers to a Python object that is not
// part of a tensor, the file is refused, and the message names that object. Every size, stride and offset is checked against
// the size of the storage's member. Reading streams: a tensor is never held whole. Throws Error(data) "[torch] file: ...".
#pragma once
#include <memory>

#include "data/safetensors.h"

namespace spillway::data {

/// Returns true if the file begins as a file of torch.save does (as a zip archive).
bool is_torch_file(const std::filesystem::path& path);

class TorchFile {
 public:
  explicit TorchFile(const std::filesystem::path& path);
  TorchFile(TorchFile&&) noexcept;
  ~TorchFile();
  /// Returns the tensors in the file's order. The keys of nested dictionaries are joined by dots, as in "module.wte.weight". Values that
  /// are not tensors are left out.
  const std::vector<TensorInfo>& tensors() const;
  const TensorInfo* find(const std::string& name) const;
  /// Copies elements [begin, begin + out.size()) of a floating-point tensor, widened to fp64. The elements are counted in row-major order,
  /// whatever the tensor's strides. Thread-safe.
  void read_wide(const TensorInfo& tensor, i64 begin, std::span<double> out) const;
  /// Copies elements from `begin` on, in the dtype in which they are stored, until `out` is full. If the
  /// tensor's elements are not contiguous in the storage, returns false and reads nothing. Thread-safe.
  bool read_bytes(const TensorInfo& tensor, i64 begin, std::span<std::byte> out) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spillway::data
