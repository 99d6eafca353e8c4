// Defines PlainModel, a trained model as it is exported, whatever the format. Adapters are merged into the weights and averages replace
// them; names and shapes are those of the model without adapters. Weights are read only on request. Thread-safe after construction.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>

#include "models/config.h"
#include "models/weights.h"

namespace spillway::models {

class PlainModel {
 public:
  /// Reads a trained model. `from` is the folder of the model's weights, `adapter` a PEFT folder with the adapters that `config` describes,
  /// and `averages` a safetensors file of moving averages: its tensor NAME.ema replaces the parameter NAME (weights.h). Throws Error(data)
  /// when a folder does not hold the model's weights.
  PlainModel(const ModelConfig& config, const std::filesystem::path& from, const std::optional<std::filesystem::path>& adapter = {},
             const std::optional<std::filesystem::path>& averages = {});

  const ModelConfig& config() const { return config_; }
  const nn::Sequential& model() const { return model_; }  // returns the model, of type f32; its storages have no memory
  const WeightSource& weights() const { return *weights_; }
  /// Returns the element type that the parameter has in the folder of the weights.
  DType stored_dtype(const nn::Parameter& parameter) const { return stored_->stored_dtype(parameter); }
  /// Returns the folder of the weights, without adapters and averages.
  const FolderWeights& stored() const { return *stored_; }

 private:
  ModelConfig config_;
  nn::Sequential model_, adapted_;  // adapted_ has the adapters, if there are any
  std::unique_ptr<FolderWeights> stored_;
  std::unique_ptr<WeightSource> weights_;
};

}  // namespace spillway::models
