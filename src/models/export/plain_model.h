// A trained model as it is exported, whatever the format: adapters added to the weights, averages in their place, names and shapes those of
// the model without adapters. Nothing is read before it is asked for. Thread-safe after construction.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>

#include "models/config.h"
#include "models/weights.h"

namespace spillway::models {

class PlainModel {
 public:
  /// `from`: the folder of the model's weights. `adapter`: a PEFT folder whose adapters `config` has. `averages`: a safetensors file whose
  /// tensors NAME.ema stand in the place of those parameters (weights.h). Throws Error(data) when a folder does not hold the model's.
  PlainModel(const ModelConfig& config, const std::filesystem::path& from, const std::optional<std::filesystem::path>& adapter = {},
             const std::optional<std::filesystem::path>& averages = {});

  const ModelConfig& config() const { return config_; }
  const nn::Sequential& model() const { return model_; }  // f32, vacant
  const WeightSource& weights() const { return *weights_; }
  /// Element type in the folder of its weights.
  DType stored_dtype(const nn::Parameter& parameter) const { return stored_->stored_dtype(parameter); }

 private:
  ModelConfig config_;
  nn::Sequential model_, adapted_;  // the latter: with adapters, where there are any
  std::unique_ptr<FolderWeights> stored_;
  std::unique_ptr<WeightSource> weights_;
};

}  // namespace spillway::models
