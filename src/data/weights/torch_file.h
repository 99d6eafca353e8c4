// TorchFile reads the tensors of a file that torch.save wrote, such as pytorch_model.bin. Since PyTorch 1.6 this is a zip archive. Its
// member data.pkl is a pickle that names the tensors, and each storage has a member with its bytes. The input is untrusted. The pickle is
// read and never run (data/torch/pickle.h). If it refers to a Python object that is not part of a tensor, the file is refused, and the
// message names that object. Every size, stride and offset is checked against the size of the storage's member. Reading streams: a tensor
// is never held whole. Errors: Error(data) "[torch] file: ...".
#pragma once
#include <filesystem>
#include <memory>

#include "data/safetensors/tensor_reader.h"

namespace spillway::data {

/// Returns true if the file begins as a file of torch.save does (as a zip archive).
bool is_torch_file(const std::filesystem::path& path);

/// The tensors' names are the keys that lead to them, joined by dots, as in "module.wte.weight". Values that are not tensors are left out.
class TorchFile : public TensorReader {
 public:
  explicit TorchFile(const std::filesystem::path& path);
  ~TorchFile() override;
  bool read_bytes(const TensorInfo& tensor, i64 begin, std::span<std::byte> out) const override;

 private:
  void widen(const TensorInfo& tensor, i64 begin, std::span<double> out) const override;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spillway::data
