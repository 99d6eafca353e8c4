// Where a model's first weights come from, tile by tile: a Hugging Face folder, or the initialisers. Never a whole tensor in memory. Read
// by the trainer, which puts each range where its plan says, and by the eager way through fill(). Thread-safe after construction.
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "data/weights/weight_folder.h"
#include "nn/module.h"

namespace spillway::models {

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// Elements [begin, begin + out.size()) of the parameter, widened to fp64. Throws Error(bug) on a range outside it.
  virtual void read(const nn::Parameter& parameter, i64 begin, std::span<double> out) const = 0;
  /// The same elements as `dtype`, little-endian, rounded to the nearest, ties to even (bf16 and f16 from f32); `out` has room for a whole
  /// number of them. A source that holds that type gives its bytes as they are.
  virtual void read_as(const nn::Parameter& parameter, i64 begin, DType dtype, std::span<std::byte> out) const;
  /// Whether it holds that type of the parameter, so that read_as() rounds nothing.
  virtual bool is_stored_as(const nn::Parameter&, DType) const { return false; }
};

/// New weights: initial_values of the seed.
class ScratchWeights final : public WeightSource {
 public:
  explicit ScratchWeights(u64 seed) : seed_(seed) {}
  void read(const nn::Parameter& parameter, i64 begin, std::span<double> out) const override;

 private:
  u64 seed_;
};

constexpr const char* kHeadName = "lm_head.weight";

/// Whether the folder's two tensors are floating, of one shape and of the same values. Reads both, a few KiB at a time.
bool holds_equal(const data::WeightFolder& tensors, const std::string& one, const std::string& other);

/// One sentence that names the tensors of a language model's folder which belong to none of its modules, such as the value head of a
/// trainer ("v_head.summary.weight"): transformers leaves them out, and so does FolderWeights. Empty: there are none.
std::string left_out_note(const std::filesystem::path& folder, const std::vector<std::string>& tensors);

/// The folder's safetensors, pytorch_model.bin, or what DeepSpeed saved; of a model with adapters (lora.h) all but those. Names are those
/// save_pretrained writes; the base model's, which lack the first part ("transformer.", "model."), are taken too. Not read: GPT-2's mask
/// buffers, Llama's rotary buffers, batch norm's num_batches_tracked, what left_out_note() names, and of a tied head an lm_head.weight that
/// equals the embedding. Where the folder has no embedding, a tied head's lm_head.weight is it.
class FolderWeights final : public WeightSource {
 public:
  /// Throws Error(data), naming up to five, when a parameter is missing, has another shape or is not floating, when a tensor is left over,
  /// or when a tied model's folder holds an lm_head.weight that differs from the embedding (read_folder_model() makes that model untied).
  FolderWeights(const nn::Sequential& model, const std::filesystem::path& folder);
  void read(const nn::Parameter& parameter, i64 begin, std::span<double> out) const override;
  void read_as(const nn::Parameter& parameter, i64 begin, DType dtype, std::span<std::byte> out) const override;
  bool is_stored_as(const nn::Parameter& parameter, DType dtype) const override { return stored_dtype(parameter) == dtype; }
  /// What the folder calls it, with wrappers.
  const std::string& stored_name(const nn::Parameter& parameter) const { return tensors_.find(names_.at(parameter.name))->name; }
  /// Element type in the folder.
  DType stored_dtype(const nn::Parameter& parameter) const;

 private:
  std::string found_name(const nn::Sequential& model, const nn::Parameter& parameter) const;
  const std::string& name_of(const nn::Parameter& parameter) const;
  void check_tied_head(const nn::Sequential& model, const std::filesystem::path& folder) const;

  data::WeightFolder tensors_;
  std::map<std::string, std::string> names_;  // parameter -> tensor of the folder, without wrappers
};

/// What stands behind a parameter's name in that of its average.
constexpr const char* kAverageSuffix = ".ema";

/// A source in whose place, of each parameter NAME that has one, the tensor NAME.ema of a safetensors file is read: the averages that a
/// checkpoint holds. What was not trained has none.
class AveragedWeights final : public WeightSource {
 public:
  /// Error(usage) where the file has no average at all; Error(data) on one of another shape.
  AveragedWeights(const nn::Sequential& model, std::unique_ptr<WeightSource> others, const std::filesystem::path& file);
  void read(const nn::Parameter& parameter, i64 begin, std::span<double> out) const override;
  void read_as(const nn::Parameter& parameter, i64 begin, DType dtype, std::span<std::byte> out) const override;

 private:
  std::unique_ptr<WeightSource> others_;
  data::SafetensorsReader file_;
};

/// Writes the source's values, rounded (bf16 and f16: of their f32), into every parameter of the model; all must be resident
/// (nn::EagerParameters). Of a GPU's the stream in force must be that GPU's, as in save().
void fill(const nn::Sequential& model, const WeightSource& source);

/// Writes every parameter, as it is and under its own name, into `folder`/model.safetensors, whole or not at all: FolderWeights reads it.
/// All must be plain and resident. Throws Error(io), Error(usage) on parameters that are not plain.
void save(const nn::Sequential& model, const std::filesystem::path& folder);

}  // namespace spillway::models
