// A model with low-rank adapters (models/lora.h) as the commands meet it: from flags, from a PEFT folder, from a checkpoint of a run, which
// holds the adapters alone and knows its base by name and fingerprint.
#pragma once
#include <filesystem>
#include <memory>

#include "app/checkpoints/model_source.h"
#include "app/flags/config.h"
#include "models/weights.h"

namespace spillway::app {

// In a checkpoint's manifest; the second where they are not plain.
constexpr const char *kBaseFingerprint = "base_fingerprint", *kBaseWeights = "base_weights";

/// What a training run's flags ask for: new adapters, or those of --adapter. Error(usage) where there is no base with weights, or a flag
/// says what the folder says; Error(data) from the folder.
void resolve_adapters(const TrainConfig& config, ModelSource& source);
/// The model with the adapter of a PEFT folder. Error(data); Error(usage) where it has one already.
void take_adapter(ModelSource& source, const std::filesystem::path& folder);

/// What source.config.base_weights is to be: as the flag asks for, if it does, in products of that precision. Error(usage): products of
/// that precision would round them again, or the model has none that are kept so.
void take_base_weights(std::optional<BaseWeights> asked, Precision precision, ModelSource& source);

/// Error(data) where the base is not the one that the checkpoint's adapters were trained beside.
void check_adapters_base(const ModelSource& base, const std::filesystem::path& checkpoint);

std::string to_string(kernels::WeightFormat format);

/// Whether the folder holds an adapter and no model of its own.
bool is_adapter_folder(const std::filesystem::path& folder);
/// The base that the folder's adapter_config.json names, with the adapter. Error(data): it is not to be found, or not the one that the
/// adapter was trained beside.
ModelSource find_adapted(const std::filesystem::path& folder, std::string name);

/// All weights of the model built for `source`, which has some; `model` must outlive them. Error(data) where a folder is another model's.
std::unique_ptr<models::WeightSource> weights_of(const ModelSource& source, const nn::Sequential& model);

/// What tells the weights of a folder from others': a sum over names, types and shapes, and the first and last values of each tensor.
std::string fingerprint_of(const std::filesystem::path& folder);

}  // namespace spillway::app
