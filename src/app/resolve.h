// Fills in what the flags left open, from the model and the data, so that config.json of the run shows every number that was used.
#pragma once
#include "app/config.h"
#include "app/model_source.h"
#include "data/loader.h"

namespace spillway::app {

/// Before the data is opened: learning rate, sequence length, dropout. `source.config` takes the dropout. Throws Error(usage) on a sequence
/// longer than the model's positions, and on text for a model with weights but no tokenizer.
void resolve_model(TrainConfig& config, ModelSource& source);
/// After: steps and warm-up.
void resolve_steps(TrainConfig& config, const data::Loader& loader);

/// Of this rank of `config.ranks`.
data::LoaderOptions loader_options(const TrainConfig& config, int rank);

/// A run's data: sources and loaders that refer to them. `held_out` serves validation, from --validation-data or the fraction.
struct RunData {
  std::vector<std::unique_ptr<data::TokenSource>> sources, validation_sources;
  std::unique_ptr<data::Loader> training, held_out;  // held_out null: no validation
};
RunData open_data(const TrainConfig& config, int rank, i64 vocabulary);

}  // namespace spillway::app
