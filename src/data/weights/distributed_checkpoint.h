// DistributedCheckpoint reads the weights of a checkpoint that torch.distributed.checkpoint wrote, which is how FSDP saves a sharded state.
// Such a checkpoint has a file .metadata, a pickle that says where each block of each tensor lies, and data files of the ranks, in which
// torch.save put one block after the other (torch/distributed/checkpoint/metadata.py and filesystem.py of PyTorch 2). The input is
// untrusted and read as in torch_file.h: no code in it is run, and blocks that leave their tensor, overlap or leave gaps are refused.
// Reading streams. Thread-safe after construction.
#pragma once
#include "data/safetensors.h"

namespace spillway::data {

/// Returns where such a checkpoint lies: `folder` itself, or its sub-folder pytorch_model_fsdp_0, as transformers and accelerate name it.
/// The path is empty if there is none.
std::filesystem::path distributed_checkpoint_in(const std::filesystem::path& folder);

class DistributedCheckpoint {
 public:
  /// Reads and checks the metadata. Throws Error(data), "[torch] <path>: <why>".
  explicit DistributedCheckpoint(const std::filesystem::path& folder);
  DistributedCheckpoint(DistributedCheckpoint&&) noexcept;
  ~DistributedCheckpoint();

  /// Returns the model's tensors under the model's own names: prefixes of the saved dictionary ("model.") are removed, and the optimizer's
  /// tensors are left out.
  const std::vector<TensorInfo>& tensors() const;
  const TensorInfo* find(const std::string& name) const;
  /// Copies elements [begin, begin + out.size()) of a floating-point tensor, widened to fp64.
  void read_wide(const TensorInfo& tensor, i64 begin, std::span<double> out) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spillway::data
