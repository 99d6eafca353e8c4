// WeightFolder reads the weights of a model folder or of a single file. In a folder it looks for model.safetensors,
// or for the shards that model.safetensors.index.json names. If the folder has neither, WeightFolder looks for weights.safetensors
// (kOwnWeights), for pytorch_model.bin or the shards that its index names, and then for a training checkpoint of DeepSpeed or FSDP.
// The parts that PyTorch wrappers insert into tensor names are removed (bare_name). Thread-safe after construction.
#pragma once
#include <memory>

#include "data/safetensors/safetensors.h"
#include "data/weights/distributed_checkpoint.h"
#include "data/weights/llm_c_file.h"
#include "data/weights/torch_file.h"
#include "data/weights/zero_checkpoint.h"

namespace spillway::data {

/// Returns the tensor name without the parts that PyTorch's wrappers insert: `module`, `_orig_mod`,
/// `_fsdp_wrapped_module`, `_fpw_module` and `_checkpoint_wrapped_module`. (The wrappers are DistributedDataParallel,
/// FSDP, torch.compile and activation checkpointing.) These parts are removed wherever and however often they occur.
std::string bare_name(std::string_view name);

class WeightFolder {
 public:
  /// Opens the files and checks every entry of an index. As in transformers, all tensors in the shards are available,
  /// also those that the index does not name. Files for which the folder's manifest has checksums are verified. A single
  /// file may be in the format of torch.save, llm.c or safetensors. Throws Error(data) as safetensors.h, torch_file.h
  /// and llm_c_file.h do. Also throws Error(data) if no file with weights is found, or if two tensors have one name. The
  /// two may be in different shards, or their names may be equal only after the wrappers' parts are removed.
  explicit WeightFolder(const std::filesystem::path& folder_or_file);
  /// Returns the names of all tensors in all files, sorted, without the parts that PyTorch's wrappers insert.
  std::vector<std::string> names() const;
  /// Returns one sentence that says which tensor names had parts of PyTorch wrappers, or "" if there were no such names.
  std::string wrappers_note() const;
  const TensorInfo* find(const std::string& name) const;
  /// Copies elements [begin, begin + out.size()) of the tensor, widened to fp64. The stored dtype is f32, f64, bf16 or f16.
  void read(const std::string& name, i64 begin, std::span<double> out) const;
  /// Copies elements from `begin` on, rounded to `dtype` as narrow_stored() does, until `out` is full. The size of `out` must be that of a
  /// whole number of elements. If the elements are stored contiguously in that dtype, the file's bytes are copied unchanged, including
  /// NaNs.
  void read_as(const std::string& name, i64 begin, DType dtype, std::span<std::byte> out) const;
  /// Returns true if both tensors have equal shapes and values (like torch.equal: a NaN equals nothing). Both
  /// must be floating-point. The tensors are read a few KiB at a time, and reading stops at the first difference.
  bool equal(const std::string& one, const std::string& other) const;

 private:
  struct Place {
    const TensorReader* file;
    const TensorInfo* info;  // points into the list of tensors that the open file holds; that list never moves
  };
  const Place& place_of(const std::string& name) const;
  void open_files();
  void open_shards(const std::filesystem::path& index);
  void open(const std::filesystem::path& file);
  void take_all(const TensorReader& file);
  const std::filesystem::path path_;
  FolderChecksums checksums_;
  std::vector<std::unique_ptr<TensorReader>> files_;
  std::map<std::string, Place> places_;  // by tensor name, without the parts that wrappers insert
};

/// The file of a checkpoint's weights if their names are not those that Hugging Face tools look for. Such tools would draw random weights for
/// the names that they miss in a model.safetensors; they refuse a folder without that file.
constexpr const char* kOwnWeights = "weights.safetensors";

/// Returns true if the folder contains weights in a format that WeightFolder reads.
bool has_weights(const std::filesystem::path& folder);

}  // namespace spillway::data
