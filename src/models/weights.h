// Sources of a model's initial weights, read piece by piece: a Hugging Face folder, the initialisers
// and others. A whole tensor is never held in memory. The trainer reads them range by range as its
// plan stores them; training without a plan calls fill(). Thread-safe after construction.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/weights/weight_folder.h"
#include "models/part_reader.h"
#include "nn/module.h"

namespace spillway::models {

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// Reads elements [begin, begin + out.size()) of the parameter, widened to fp64. Throws Error(bug) on a range outside the parameter.
  virtual void read(const nn::Parameter& parameter, i64 begin, std::span<double> out) const = 0;
  /// Reads elements from `begin` on as `dtype`, little-endian, rounded to the nearest, ties to even (to bf16 and f16 after rounding
  /// to f32). The size of `out` is a whole number of elements. A source that stores the type `dtype` returns its bytes unchanged.
  virtual void read_as(const nn::Parameter& parameter, i64 begin, DType dtype, std::span<std::byte> out) const;
  /// Returns whether the source stores the parameter in the type that is passed, so that read_as() does not round.
  virtual bool is_stored_as(const nn::Parameter&, DType) const { return false; }
};

/// New weights, which nn::initial_values() computes from a seed.
class ScratchWeights final : public WeightSource {
 public:
  explicit ScratchWeights(u64 seed) : seed_(seed) {}
  void read(const nn::Parameter& parameter, i64 begin, std::span<double> out) const override;

 private:
  u64 seed_;
};

constexpr const char* kHeadName = "lm_head.weight";

/// Returns whether two tensors of the folder are of a floating type and have equal shapes and values. Reads both tensors, a few KiB at a
/// time.
bool holds_equal(const data::WeightFolder& tensors, const std::string& one, const std::string& other);

/// Returns a sentence that names the tensors of a language model's folder that belong to none of its modules, such as the value head of a
/// trainer ("v_head.summary.weight"), or to blocks of multi-token prediction. transformers ignores such tensors, and so does FolderWeights.
/// The text is empty if there are none.
std::string left_out_note(const std::filesystem::path& folder, const std::vector<std::string>& tensors);

/// Reads the weights of a folder: safetensors, pytorch_model.bin, or files saved by DeepSpeed. For a model with adapters (lora.h),
/// FolderWeights reads all parameters except those of the adapters. Tensor names are those that save_pretrained writes; names of
/// the base model without the first part ("transformer.", "model.") are accepted too. A parameter may also be stored as a
/// part of a larger tensor (nn::Parameter::stored). Some tensors are ignored: GPT-2's mask
/// buffers, Llama's rotary buffers, batch norm's num_batches_tracked, the tensors that left_out_note() names, and, if the head is
/// tied, an lm_head.weight that equals the embedding. If the folder has no embedding, a tied head's lm_head.weight is used for it.
/// The language model of a model of several parts has names with "language_model." in them; the tensors of the other parts are ignored.
class FolderWeights final : public WeightSource {
 public:
  /// Opens the folder. Throws an Error(data) that names up to five tensors when a parameter is missing, has
  /// another shape or is not floating, when no parameter matches a tensor, or when a tied model's folder
  /// holds an lm_head.weight that differs from the embedding (read_folder_model() makes such a model untied).
  FolderWeights(const nn::Sequential& model, const std::filesystem::path& folder);
  void read(const nn::Parameter& parameter, i64 begin, std::span<double> out) const override;
  void read_as(const nn::Parameter& parameter, i64 begin, DType dtype, std::span<std::byte> out) const override;
  bool is_stored_as(const nn::Parameter& parameter, DType dtype) const override { return stored_dtype(parameter) == dtype; }
  /// Returns the name under which the folder stores the parameter, with the
  /// prefixes of PyTorch wrappers such as torch.compile (data::bare_name).
  const std::string& stored_name(const nn::Parameter& parameter) const { return tensors_.find(place_of(parameter).tensor)->name; }
  /// Returns the part of the tensor stored_name() as which the folder stores the parameter, or null if the parameter is the whole tensor.
  const nn::StoredPart* stored_part(const nn::Parameter& parameter) const;
  /// Returns the element type that the parameter has in the folder.
  DType stored_dtype(const nn::Parameter& parameter) const;
  /// Returns the names of the folder's tensors that belong to none of the model's parameters, sorted.
  const std::vector<std::string>& others() const { return others_; }
  const data::WeightFolder& tensors() const { return tensors_; }

 private:
  struct Place {
    std::string tensor;               // the tensor's name in the folder, without wrapper prefixes
    std::optional<size_t> form = {};  // which of the parameter's forms (nn::Parameter::stored) the tensor has, if it is a larger tensor
  };
  std::optional<std::string> present(const std::string& name) const;
  std::string head_name() const;
  Place found_place(const nn::Sequential& model, const nn::Parameter& parameter) const;
  const Place& place_of(const nn::Parameter& parameter) const;
  bool fits(const nn::Parameter& parameter, const Place& place) const;
  std::string scales_of(const nn::StoredPart& part, const std::string& blocks) const;
  void read_part(const nn::Parameter& parameter, const nn::StoredPart& part, i64 begin, std::span<std::byte> out) const;
  void check_tied_head(const nn::Sequential& model, const std::filesystem::path& folder) const;

  data::WeightFolder tensors_;
  std::vector<std::string> others_;
  std::map<std::string, Place> places_;  // by the parameter's name
  PartReader parts_;
};

/// The name of a parameter's moving average is the parameter's name followed by this suffix.
constexpr const char* kAverageSuffix = ".ema";

/// Replaces weights by their moving averages: for each parameter NAME, the tensor NAME.ema of a checkpoint's safetensors
/// file is read, if there is one. Parameters that were not trained have no average; they are read from `others`.
class AveragedWeights final : public WeightSource {
 public:
  /// Opens the file. Throws Error(usage) if the file has no average at all,
  /// and Error(data) if an average has another shape than its parameter.
  AveragedWeights(const nn::Sequential& model, std::unique_ptr<WeightSource> others, const std::filesystem::path& file);
  void read(const nn::Parameter& parameter, i64 begin, std::span<double> out) const override;
  void read_as(const nn::Parameter& parameter, i64 begin, DType dtype, std::span<std::byte> out) const override;

 private:
  std::unique_ptr<WeightSource> others_;
  data::SafetensorsReader file_;
};

/// Writes the source's values into every parameter of the model, rounded to its type as read_as() does. All parameters must
/// be resident (nn::EagerParameters). For parameters on a GPU the current stream must belong to that GPU.
void fill(const nn::Sequential& model, const WeightSource& source);

}  // namespace spillway::models
