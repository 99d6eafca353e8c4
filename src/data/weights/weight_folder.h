// WeightFolder reads the weights of a model folder or of a single file. In a folder it looks for model.safetensors or the shards that
// model.safetensors.index.json names, then for pytorch_model.bin or the shards of its index, then for a training checkpoint of DeepSpeed or
// FSDP. Names lose the parts that PyTorch wrappers put into them (bare_name). Thread-safe after construction.
#pragma once
#include <variant>

#include "data/weights/distributed_checkpoint.h"
#include "data/weights/llm_c_file.h"
#include "data/weights/torch_file.h"
#include "data/weights/zero_checkpoint.h"

namespace spillway::data {

/// Returns the name without the parts that DistributedDataParallel, FSDP, torch.compile and activation checkpointing insert, wherever and
/// however often they occur: `module`, `_orig_mod`, `_fsdp_wrapped_module`, `_fpw_module`, `_checkpoint_wrapped_module`.
std::string bare_name(std::string_view name);

class WeightFolder {
 public:
  /// Opens the files and checks every entry of an index. As in transformers, all tensors of the shards are available, also those that the
  /// index does not name. Files that have checksums in the folder's manifest are verified. A single file may be in the format of
  /// torch.save, llm.c or safetensors. Throws Error(data) as safetensors.h, torch_file.h and llm_c_file.h do; also if there is no such
  /// file, or if two tensors have the same name, be it in two shards or after removing wrappers.
  explicit WeightFolder(const std::filesystem::path& folder_or_file);
  /// Returns the names of all tensors in all files, sorted, without wrappers.
  std::vector<std::string> names() const;
  /// Returns one sentence about the wrappers in the stored names, or "" if there are none.
  std::string wrappers_note() const;
  const TensorInfo* find(const std::string& name) const;
  /// Copies elements [begin, begin + out.size()) of the tensor, widened to fp64. The stored dtype is f32, f64, bf16 or f16.
  void read(const std::string& name, i64 begin, std::span<double> out) const;
  /// Copies elements from `begin` on as `dtype`, rounded as narrow_stored() does. `out` holds a whole number of them. If they are stored
  /// contiguously in that dtype, the file's bytes are copied unchanged, including NaNs.
  void read_as(const std::string& name, i64 begin, DType dtype, std::span<std::byte> out) const;
  /// Returns true if both tensors have the same shape and values (like torch.equal: a NaN equals nothing). Both must be floating-point.
  /// They are read a few KiB at a time, up to the first difference.
  bool equal(const std::string& one, const std::string& other) const;

 private:
  using TensorFile = std::variant<SafetensorsReader, TorchFile, ZeroCheckpoint, DistributedCheckpoint, LlmCFile>;
  struct Place {
    size_t file;
    const TensorInfo* info;  // points into the file's own list, which never moves
  };
  const Place& place_of(const std::string& name) const;
  void open_files();
  void open_shards(const std::filesystem::path& index);
  void open(const std::filesystem::path& file);
  void take_all(size_t file);
  const std::filesystem::path path_;
  FolderChecksums checksums_;
  std::vector<TensorFile> files_;
  std::map<std::string, Place> places_;  // keys are names without wrappers
};

/// Returns true if the folder contains weights in one of the forms that WeightFolder reads.
bool has_weights(const std::filesystem::path& folder);

}  // namespace spillway::data
