// A model folder's weights: model.safetensors, or the shards that model.safetensors.index.json names; where there are neither,
// pytorch_model.bin, or the shards of its index; else a training run that DeepSpeed or FSDP saved
// there. Or those of one file. Names lose what wrappers of PyTorch put into them (bare_name). Thread-safe once made.
#pragma once
#include <variant>

#include "data/weights/distributed_checkpoint.h"
#include "data/weights/llm_c_file.h"
#include "data/weights/torch_file.h"
#include "data/weights/zero_checkpoint.h"

namespace spillway::data {

/// The name without the parts that DistributedDataParallel, FSDP, torch.compile and activation checkpointing put into it, wherever and
/// however often they stand: `module`, `_orig_mod`, `_fsdp_wrapped_module`, `_fpw_module`, `_checkpoint_wrapped_module`.
std::string bare_name(std::string_view name);

class WeightFolder {
 public:
  /// Every entry of an index is checked when it is opened. As in transformers, all tensors of the shards are there, also those that the
  /// index does not name. What the folder's manifest has checksums of is read through them. A file is one of torch.save's, llm.c's or
  /// safetensors. Throws Error(data) as safetensors.h, torch_file.h and llm_c_file.h; where there is no such file; and where two tensors
  /// have one name, in two shards or without their wrappers.
  explicit WeightFolder(const std::filesystem::path& folder_or_file);
  /// All tensor names over all files, sorted, without wrappers.
  std::vector<std::string> names() const;
  /// One sentence about the wrappers that the stored names have; empty: they have none.
  std::string wrappers_note() const;
  const TensorInfo* find(const std::string& name) const;
  /// Elements [begin, begin + out.size()) of the tensor widened to fp64 (f32, f64, bf16 and f16 sources).
  void read(const std::string& name, i64 begin, std::span<double> out) const;
  /// The same elements as `dtype`, rounded as narrow_stored() does; `out` has room for a whole number of them. Where they are stored as
  /// that type, one behind the other, the file's bytes are taken as they are, NaNs with them.
  void read_as(const std::string& name, i64 begin, DType dtype, std::span<std::byte> out) const;
  /// Whether both tensors have one shape and the same values (torch.equal: a NaN equals nothing). Reads both, a few KiB at a time, up to
  /// the first difference; floating ones only.
  bool equal(const std::string& one, const std::string& other) const;

 private:
  using TensorFile = std::variant<SafetensorsReader, TorchFile, ZeroCheckpoint, DistributedCheckpoint, LlmCFile>;
  struct Place {
    size_t file;
    const TensorInfo* info;  // in the file's own list, which never moves
  };
  const Place& place_of(const std::string& name) const;
  void open_files();
  void open_shards(const std::filesystem::path& index);
  void open(const std::filesystem::path& file);
  void take_all(size_t file);
  const std::filesystem::path path_;
  FolderChecksums checksums_;
  std::vector<TensorFile> files_;
  std::map<std::string, Place> places_;  // by bare name
};

/// Whether there is one of those.
bool has_weights(const std::filesystem::path& folder);

}  // namespace spillway::data
