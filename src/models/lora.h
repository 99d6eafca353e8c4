// Low-rank adapters (Hu et al., arXiv:2106.09685) in the format of Hugging Face's PEFT: adapter_config.json and adapter_model.safetensors
// (adapter_model.bin in older versions), whose tensors are named "base_model.model.<module>.lora_A.weight" and "….lora_B.weight".
#pragma once
#include <filesystem>
#include <memory>
#include <mutex>

#include "models/config.h"
#include "models/weights.h"
#include "nn/layers.h"

namespace spillway::models {

constexpr const char *kAdapterConfigName = "adapter_config.json", *kAdapterName = "adapter_model.safetensors",
                     *kOldAdapterName = "adapter_model.bin";

/// Returns the adapter settings of the layer named `module`; rank 0 if the configuration does not adapt it.
nn::Lora lora_of(const ModelConfig& config, const std::string& module);

/// Returns whether a name in target_modules denotes a token embedding, a position table or a head. Adapters for these are not implemented.
bool is_embedding_or_head(const std::string& module);

/// is_adapter() returns whether the parameter belongs to an adapter, has_adapters() whether the model has any.
bool is_adapter(const nn::Parameter& parameter);
bool has_adapters(const nn::Sequential& model);
/// Returns the parameter's name in PEFT's files.
std::string peft_name(const nn::Parameter& parameter);

/// Parses an adapter_config.json. Throws an Error(data) that names file and
/// key if the adapter is not LoRA or uses a feature that is not implemented.
LoraConfig parse_adapter_config(std::string_view json, const std::string& file);
LoraConfig read_adapter_config(const std::filesystem::path& folder);
/// The base model named in adapter_config.json and its revision on the Hugging Face
/// hub. read_adapter_base() throws Error(data) if the file names no base model.
struct AdapterBase {
  std::string name, revision;
};
AdapterBase read_adapter_base(const std::filesystem::path& folder);
/// Returns an adapter_config.json that PEFT can load, ending with a newline. `modules` lists the modules that have an adapter; `base` names
/// the model that the adapter was trained on.
std::string adapter_json(const ModelConfig& config, const std::vector<std::string>& modules, const std::string& base);
/// Returns the names of the model's modules that have an adapter, in the model's order.
std::vector<std::string> adapted_modules(const nn::Sequential& model);

/// Combines two sources of weights: one for the adapters, and one for all other parameters. Thread-safe after construction.
class AdaptedWeights final : public WeightSource {
 public:
  AdaptedWeights(std::unique_ptr<WeightSource> base, std::unique_ptr<WeightSource> adapter)
      : base_(std::move(base)), adapter_(std::move(adapter)) {}
  void read(const nn::Parameter& parameter, i64 begin, std::span<double> out) const override {
    source_of(parameter).read(parameter, begin, out);
  }
  void read_as(const nn::Parameter& parameter, i64 begin, DType dtype, std::span<std::byte> out) const override {
    source_of(parameter).read_as(parameter, begin, dtype, out);
  }
  bool is_stored_as(const nn::Parameter& parameter, DType dtype) const override {
    return source_of(parameter).is_stored_as(parameter, dtype);
  }

 private:
  const WeightSource& source_of(const nn::Parameter& parameter) const { return is_adapter(parameter) ? *adapter_ : *base_; }

  std::unique_ptr<WeightSource> base_, adapter_;
};

/// Returns a sentence for the user about prefixes that PyTorch wrappers put into the tensor names of the folder's adapters
/// (data::bare_name); empty if there are none. Throws Error(data) if the folder has no readable weights.
std::string adapter_note(const std::filesystem::path& folder);

/// Reads the adapters of a PEFT folder, and no other weights. Thread-safe after construction.
class AdapterFolder final : public WeightSource {
 public:
  /// Opens the folder. Throws an Error(data) that names tensors if the
  /// folder's tensors do not match the model's adapters or the model has none.
  AdapterFolder(const nn::Sequential& model, const std::filesystem::path& folder);
  void read(const nn::Parameter& parameter, i64 begin, std::span<double> out) const override;
  void read_as(const nn::Parameter& parameter, i64 begin, DType dtype, std::span<std::byte> out) const override;
  bool is_stored_as(const nn::Parameter& parameter, DType dtype) const override { return stored_dtype(parameter) == dtype; }
  /// Returns the element type that the parameter has in the folder.
  DType stored_dtype(const nn::Parameter& parameter) const { return file_.find(peft_name(parameter))->dtype; }

 private:
  data::WeightFolder file_;
};

/// Weights with the adapters merged into them: w + scale * (B A), where B A is transposed if w is stored [inputs,
/// outputs]. A model without adapters that has these weights computes what the model with adapters computes. Thread-safe.
class MergedWeights final : public WeightSource {
 public:
  /// Merges adapters. `adapted` is the model with adapters, built from `config`; `source` provides its weights.
  MergedWeights(const ModelConfig& config, const nn::Sequential& adapted, std::unique_ptr<WeightSource> source);
  void read(const nn::Parameter& parameter, i64 begin, std::span<double> out) const override;
  void read_as(const nn::Parameter& parameter, i64 begin, DType dtype, std::span<std::byte> out) const override;

 private:
  struct Adapter {
    const nn::Parameter *a, *b;
    double scale;
  };
  // The two matrices of one adapter, read into memory.
  struct Matrices {
    const nn::Parameter* of;
    std::vector<double> a, b;
  };
  std::shared_ptr<const Matrices> matrices(const Adapter& adapter) const;

  std::unique_ptr<WeightSource> source_;
  std::map<std::string, Adapter> adapters_;  // the adapters, by the name of the weight to which each is added
  bool inputs_first_;                        // whether weights are stored [inputs, outputs]
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Matrices> last_;
};

}  // namespace spillway::models
