// The weights of a checkpoint that torch.distributed.checkpoint wrote, as FSDP saves a sharded state: .metadata, a pickle that says which
// block of which tensor lies where, and files of the ranks in which torch.save put one block behind the other
// (torch/distributed/checkpoint/metadata.py and filesystem.py of PyTorch 2). An untrusted input, read as torch_file.h's files are: nothing
// is run, blocks that leave a tensor, overlap or leave something out are refused. Readers stream. Thread-safe once made.
#pragma once
#include "data/safetensors.h"

namespace spillway::data {

/// Where one lies: the folder itself, or what transformers and accelerate call the model's in it (pytorch_model_fsdp_0). Empty: nowhere.
std::filesystem::path distributed_checkpoint_in(const std::filesystem::path& folder);

class DistributedCheckpoint {
 public:
  /// Throws Error(data), "[torch] <path>: <why>".
  explicit DistributedCheckpoint(const std::filesystem::path& folder);
  DistributedCheckpoint(DistributedCheckpoint&&) noexcept;
  ~DistributedCheckpoint();

  /// By the names that the model has: what the saved dictionary put before them ("model.") is taken off, the optimizer's are left out.
  const std::vector<TensorInfo>& tensors() const;
  const TensorInfo* find(const std::string& name) const;
  /// Elements [begin, begin + out.size()) of a floating one, widened to fp64.
  void read_wide(const TensorInfo& tensor, i64 begin, std::span<double> out) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spillway::data
