// Fills in what the flags left open, from the model and the data, so that config.json of the run shows every number that was used.
#pragma once
#include "app/flags/config.h"
#include "app/run/model_source.h"
#include "data/image_source.h"
#include "data/loader.h"

namespace spillway::app {

/// Before the data is opened: learning rate, sequence length, rows of a micro-batch, dropout. `source.config` takes the dropout. Throws
/// Error(usage) on a sequence longer than the model's positions, on text for a model with weights but no tokenizer, and on what image
/// models have no use for.
void resolve_model(TrainConfig& config, ModelSource& source);
/// After: steps and warm-up.
void resolve_steps(TrainConfig& config, const data::Loader& loader);

/// 1, of images 64.
i64 default_micro_batch_size(const models::ModelConfig& model);

/// Of this rank of `config.ranks`.
data::LoaderOptions loader_options(const TrainConfig& config, int rank);

/// What lies at paths of --data or --validation-data, of the kind that the model reads; it outlives its samples.
class DataSources {
 public:
  /// Errors are open_token_sources' and open_cifar10's.
  DataSources(const std::vector<std::string>& paths, const models::ModelConfig& model, data::Split split);
  std::unique_ptr<data::Samples> samples(i64 sequence_length, DType dtype) const;

 private:
  std::vector<std::unique_ptr<data::TokenSource>> tokens_;
  std::vector<std::unique_ptr<data::ImageSource>> images_;
};

/// A run's data. `held_out` serves validation, from --validation-data or the fraction.
struct RunData {
  RunData(const TrainConfig& config, int rank, const models::ModelConfig& model);

  const DataSources sources;
  std::optional<DataSources> validation_sources;
  std::unique_ptr<const data::Loader> training, held_out;  // held_out null: no validation
};

}  // namespace spillway::app
