// Tensors of a file that torch.save wrote (since PyTorch 1.6: a zip archive whose data.pkl is a pickle that names them, beside a member of
// bytes for each storage): pytorch_model.bin and its like. An untrusted input: the pickle is read and never run (pickle/pickle.h), one that
// asks for anything but tensors is refused by that name, and every size, stride and offset is checked against the storage's member. Readers
// stream: no tensor is ever held whole. Errors: Error(data) "[torch] file: ...".
#pragma once
#include <memory>

#include "data/safetensors.h"

namespace spillway::data {

/// Whether it begins as torch.save's files do.
bool is_torch_file(const std::filesystem::path& path);

class TorchFile {
 public:
  explicit TorchFile(const std::filesystem::path& path);
  TorchFile(TorchFile&&) noexcept;
  ~TorchFile();
  /// In the file's order; a dictionary in another one has its keys behind a dot: "module.wte.weight". What is no tensor is not there.
  const std::vector<TensorInfo>& tensors() const;
  const TensorInfo* find(const std::string& name) const;
  /// Elements [begin, begin + out.size()) of a floating tensor, in row-major order whatever its strides, widened to fp64. Thread-safe.
  void read_wide(const TensorInfo& tensor, i64 begin, std::span<double> out) const;
  /// The bytes of the elements from `begin` on, as they are stored. False, with nothing read, where the tensor's elements do not lie one
  /// behind the other in its storage. Thread-safe.
  bool read_bytes(const TensorInfo& tensor, i64 begin, std::span<std::byte> out) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spillway::data
