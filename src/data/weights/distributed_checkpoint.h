// DistributedCheckpoint reads the weights of a checkpoint that torch.distributed.checkpoint wrote, which is how FSDP saves a sharded
// state. Such a checkpoint has a file .metadata and data files of the ranks. .metadata is a pickle that says where each block of
// each tensor is stored. In a data file, torch.save has put one block after the other (torch/distributed/checkpoint/metadata.py and
// filesystem.py of PyTorch 2). The input is untrusted and read as in torch_file.h: no code in it is run. Blocks that reach beyond
// their tensor, overlap or leave gaps are refused. Reading streams. Thread-safe after construction.
#pragma once
#include <filesystem>
#include <memory>

#include "data/safetensors/tensor_reader.h"

namespace spillway::data {

/// Returns the folder that holds a checkpoint of torch.distributed.checkpoint: `folder` itself, or its sub-folder pytorch_model_fsdp_0,
/// which is the name that transformers and accelerate use. Returns an empty path if neither folder holds such a checkpoint.
std::filesystem::path distributed_checkpoint_in(const std::filesystem::path& folder);

/// The tensors are the model's, under the names that the model gives them: the prefixes under which the program saved them ("model.") are
/// removed. The optimizer's tensors are left out.
class DistributedCheckpoint : public TensorReader {
 public:
  /// Reads and checks the metadata. Throws Error(data) "[torch] <path>: <why>".
  explicit DistributedCheckpoint(const std::filesystem::path& folder);
  ~DistributedCheckpoint() override;

 private:
  void widen(const TensorInfo& tensor, i64 begin, std::span<double> out) const override;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spillway::data
