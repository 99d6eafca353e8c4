// Fills in what the flags left open, from the model and the data, so that config.json of the run shows every number that was used.
#pragma once
#include "app/checkpoints/checkpoint.h"
#include "app/checkpoints/model_source.h"
#include "app/flags/config.h"
#include "app/ranks/peers.h"
#include "data/loader.h"
#include "kernels/attention/attention_library.h"

namespace spillway::app {

/// Before the data is opened: learning rate, sequence length, rows of a micro-batch, dropout. `source.config` takes the dropout and whose
/// attention it is. Throws Error(usage) on an --attention that cannot be, on a sequence longer than the model's positions, on text for a
/// model with weights but no tokenizer, and on what image models have no use for.
void resolve_model(TrainConfig& config, ModelSource& source);
/// After: steps and warm-up.
void resolve_steps(TrainConfig& config, const data::Loader& loader);
/// Of the resolved configuration, what an epoch is: its rows and steps, how large the last step is, or which rows it leaves out; and how
/// many epochs the run has. For the log.
std::string epoch_note(const TrainConfig& config, const data::Loader& loader, bool images);
/// What differs from here on of a run that was begun by a program whose steps went on over an epoch's end, or an empty text.
std::string older_epochs_note(const Progress& progress, const data::Loader& loader);
/// Tells the loader of a mixture where its sources stand, and `progress` for the checkpoints to come. `weights_before`: of the run whose
/// `progress` it is, whose program may have been too old to record them; empty: it was no mixture. `data_now`: Loader::fingerprint.
/// Returns what is to be said, or an empty text.
std::string settle_mixture(Progress& progress, const std::vector<double>& weights_before, const std::string& data_now,
                           data::Loader& loader);

/// 1, of images 64.
i64 default_micro_batch_size(const models::ModelConfig& model);

/// Threads that read data: --workers, or as many as the rank computes with.
int loader_workers(const TrainConfig& config, const RankPlace& place);

/// What all attention of a run is.
kernels::AttentionShape attention_shape(const models::ModelConfig& model, i64 micro_batch_size, i64 sequence_length, DType dtype);

/// Of this rank of `config.ranks`.
data::LoaderOptions loader_options(const TrainConfig& config, int rank);

}  // namespace spillway::app
