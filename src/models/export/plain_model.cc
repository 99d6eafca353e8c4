#include "models/export/plain_model.h"

#include "models/lora.h"
#include "models/model.h"

namespace spillway::models {
namespace {

ModelConfig without_adapters(ModelConfig config) {
  config.lora.reset();
  return config;
}

}  // namespace

PlainModel::PlainModel(const ModelConfig& config, const std::filesystem::path& from, const std::optional<std::filesystem::path>& adapter,
                       const std::optional<std::filesystem::path>& averages)
    : config_(without_adapters(config)),
      model_(build(config_, DType::f32)),
      adapted_(adapter ? build(config, DType::f32) : nn::Sequential()),
      stored_(std::make_unique<FolderWeights>(model_, from)),
      weights_(std::make_unique<FolderWeights>(model_, from)) {
  if (adapter) weights_ = std::make_unique<AdaptedWeights>(std::move(weights_), std::make_unique<AdapterFolder>(adapted_, *adapter));
  if (averages) weights_ = std::make_unique<AveragedWeights>(adapter ? adapted_ : model_, std::move(weights_), *averages);
  if (adapter) weights_ = std::make_unique<MergedWeights>(config, adapted_, std::move(weights_));
}

}  // namespace spillway::models
