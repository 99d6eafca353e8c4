// Low-rank adapters (Hu et al., arXiv:2106.09685) as Hugging Face's PEFT writes them: adapter_config.json and adapter_model.safetensors (of
// older programs adapter_model.bin), whose tensors are named "base_model.model.<module>.lora_A.weight" and "….lora_B.weight".
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

/// Of the layer of that name; rank 0: it is no target.
nn::Lora lora_of(const ModelConfig& config, const std::string& module);

/// Whether a name in target_modules is that of a token embedding, a table of positions or a head, which adapters cannot be of here.
bool is_embedding_or_head(const std::string& module);

/// Whether the parameter is an adapter's, and whether the model has any.
bool is_adapter(const nn::Parameter& parameter);
bool has_adapters(const nn::Sequential& model);
/// Its name in PEFT's files.
std::string peft_name(const nn::Parameter& parameter);

/// Throws Error(data) naming file and key: not LoRA, or with a feature that is not built.
LoraConfig parse_adapter_config(std::string_view json, const std::string& file);
LoraConfig read_adapter_config(const std::filesystem::path& folder);
/// The base that its adapter_config.json names, and of which revision it is on the Hugging Face hub. Error(data): none.
struct AdapterBase {
  std::string name, revision;
};
AdapterBase read_adapter_base(const std::filesystem::path& folder);
/// One that PEFT loads; `modules`: those that have an adapter; `base`: what it was trained beside. Ends with a newline.
std::string adapter_json(const ModelConfig& config, const std::vector<std::string>& modules, const std::string& base);
/// Modules of the model with an adapter, in its order.
std::vector<std::string> adapted_modules(const nn::Sequential& model);

/// A model's weights, of which the adapters come from elsewhere. Thread-safe after construction.
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

/// One sentence about wrappers in the names of the folder's adapters (data::WeightFolder); empty: there are none. Error(data): the folder
/// has no weights that can be read.
std::string adapter_note(const std::filesystem::path& folder);

/// The adapters of a PEFT folder. Reads adapters alone. Thread-safe after construction.
class AdapterFolder final : public WeightSource {
 public:
  /// Throws Error(data), naming tensors, where the folder's are not those of the model's adapters, or where it has none.
  AdapterFolder(const nn::Sequential& model, const std::filesystem::path& folder);
  void read(const nn::Parameter& parameter, i64 begin, std::span<double> out) const override;
  void read_as(const nn::Parameter& parameter, i64 begin, DType dtype, std::span<std::byte> out) const override;
  bool is_stored_as(const nn::Parameter& parameter, DType dtype) const override { return stored_dtype(parameter) == dtype; }
  /// Element type in the folder.
  DType stored_dtype(const nn::Parameter& parameter) const { return file_.find(peft_name(parameter))->dtype; }

 private:
  data::WeightFolder file_;
};

/// What the model without adapters must weigh to compute what the one with them does: w + scale * (B A), or its transpose. Thread-safe.
class MergedWeights final : public WeightSource {
 public:
  /// `adapted`: the model with adapters, of `config`, whose weights `source` has.
  MergedWeights(const ModelConfig& config, const nn::Sequential& adapted, std::unique_ptr<WeightSource> source);
  void read(const nn::Parameter& parameter, i64 begin, std::span<double> out) const override;
  void read_as(const nn::Parameter& parameter, i64 begin, DType dtype, std::span<std::byte> out) const override;

 private:
  struct Adapter {
    const nn::Parameter *a, *b;
    double scale;
  };
  // Both matrices of one adapter.
  struct Matrices {
    const nn::Parameter* of;
    std::vector<double> a, b;
  };
  std::shared_ptr<const Matrices> matrices(const Adapter& adapter) const;

  std::unique_ptr<WeightSource> source_;
  std::map<std::string, Adapter> adapters_;  // by the name of the weight they are added to
  bool inputs_first_;                        // weights are [I, O]
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Matrices> last_;
};

}  // namespace spillway::models
