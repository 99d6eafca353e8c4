// Sets up a model with low-rank adapters (LoRA, models/lora.h) from flags, from a PEFT folder, or from a run's checkpoint. Such a
// checkpoint holds only the adapters and refers to its base model by name and fingerprint.
#pragma once
#include <filesystem>
#include <memory>

#include "models/weights.h"
#include "trainer/checkpoints/model_source.h"
#include "trainer/settings/config.h"

namespace spillway::trainer {

// Keys in a checkpoint's manifest. kBaseWeights is written only if the base weights are stored in another format than that of the matrix
// products.
constexpr const char *kBaseFingerprint = "base_fingerprint", *kBaseWeights = "base_weights";

/// Gives `source` the adapters that a training run's flags ask for: new ones (--lora), or those of --adapter. Throws Error(usage) if
/// the base model has no weights, or if a flag sets a value that the adapter's folder sets too. Throws Error(data) for a bad folder.
void resolve_adapters(const TrainConfig& config, ModelSource& source);
/// Adds the adapter of a PEFT folder to `source`. Throws Error(usage) if `source` has an adapter already, and Error(data) for a bad folder.
void take_adapter(ModelSource& source, const std::filesystem::path& folder);

/// Sets source.config.base_weights to the value of --base-weights, `asked`, if the flag is given. `precision` is the precision of the
/// matrix products. Throws Error(usage) if these products would round the weights once more, or if the model is not a language model.
void take_base_weights(std::optional<BaseWeights> asked, Precision precision, ModelSource& source);

/// Throws Error(data) if `base` is not the model with which the checkpoint's adapters were trained.
void check_adapters_base(const ModelSource& base, const std::filesystem::path& checkpoint);

std::string to_string(kernels::WeightFormat format);

/// Returns whether the folder holds an adapter but no model.
bool is_adapter_folder(const std::filesystem::path& folder);
/// Returns the base model that the folder's adapter_config.json names, with the adapter added. Throws Error(data) if the base is not found
/// or is another model than the one with which the adapter was trained.
ModelSource find_adapted(const std::filesystem::path& folder, std::string name);

/// Returns an object that reads all weights of `model`. `model` must have been built for `source` and must
/// outlive the result, and `source` must have weights. Throws Error(data) if a folder belongs to another model.
std::unique_ptr<models::WeightSource> weights_of(const ModelSource& source, const nn::Sequential& model);

/// Returns a fingerprint that distinguishes the weights of a folder from others. It is a checksum over the names,
/// types and shapes of all tensors and over the first and last values of each, followed by the number of elements.
std::string fingerprint_of(const std::filesystem::path& folder);

}  // namespace spillway::trainer
