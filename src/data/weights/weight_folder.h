// A model folder's weights: model.safetensors, or the shards that model.safetensors.index.json names; where there are neither,
// pytorch_model.bin, or the shards of its index; else a training run that DeepSpeed or FSDP saved
// there. Or those of one file. Thread-safe once made.
#pragma once
#include <variant>

#include "data/weights/distributed_checkpoint.h"
#include "data/weights/llm_c_file.h"
#include "data/weights/torch_file.h"
#include "data/weights/zero_checkpoint.h"

namespace spillway::data {

class WeightFolder {
 public:
  /// Every entry of an index is checked when it is opened; tensors of a shard that the index does not name are not there. What the folder's
  /// manifest has checksums of is read through them. A file is one of torch.save's, llm.c's or safetensors. Throws Error(data) as
  /// safetensors.h, torch_file.h and llm_c_file.h, and where there is no such file.
  explicit WeightFolder(const std::filesystem::path& folder_or_file);
  /// All tensor names over all files, sorted.
  std::vector<std::string> names() const;
  const TensorInfo* find(const std::string& name) const;
  /// Elements [begin, begin + out.size()) of the tensor widened to fp64 (f32, f64, bf16 and f16 sources).
  void read(const std::string& name, i64 begin, std::span<double> out) const;

 private:
  using TensorFile = std::variant<SafetensorsReader, TorchFile, ZeroCheckpoint, DistributedCheckpoint, LlmCFile>;
  struct Place {
    size_t file;
    const TensorInfo* info;  // in the file's own list, which never moves
  };
  std::vector<TensorFile> files_;
  std::map<std::string, Place> places_;
};

/// Whether there is one of those.
bool has_weights(const std::filesystem::path& folder);

}  // namespace spillway::data
