// Fills in the options that the flags left open, from the model and the
// data. As a result the run's config.json shows every number that was used.
#pragma once
#include "data/loader/loader.h"
#include "kernels/sequence/attention_library.h"
#include "trainer/checkpoints/checkpoint.h"
#include "trainer/checkpoints/model_source.h"
#include "trainer/ranks/peers.h"
#include "trainer/settings/config.h"

namespace spillway::trainer {

/// Resolves what is needed before the data is opened: learning rate, sequence length, rows of a micro-batch, dropout. Writes
/// the dropout and the attention implementation to `source.config`. Throws Error(usage) for an --attention that cannot be used,
/// for a sequence longer than the model's positions, and for flags that do not apply to the kind of model (image or text).
void resolve_model(TrainConfig& config, ModelSource& source);
/// Resolves the options that depend on the data: the number of steps and of warm-up steps.
void resolve_steps(TrainConfig& config, const data::Loader& loader);
/// Returns a text that describes an epoch of the resolved run: its steps, the
/// size of its last step or the rows that are dropped, and how many epochs the run has.
std::string epoch_note(const TrainConfig& config, const data::Loader& loader, bool images);
/// Returns a note if an older version of this program began the run and the rest of the run differs from that
/// version. In older versions a step could cross the end of an epoch. Returns an empty text if nothing differs.
std::string older_epochs_note(const Progress& progress, const data::Loader& loader);
/// Decides at which row each source of a weighted mixture resumes. Passes the decision to the loader and stores it in
/// `progress`, so that later checkpoints save it. `weights_before` are the mixture weights with which the run to resume was
/// started; they are needed because older programs did not record them in checkpoints. They are empty if the run's data was
/// no mixture. `data_now` is the Loader::fingerprint() of the current data. Returns a note for the log, or an empty text.
std::string settle_mixture(Progress& progress, const std::vector<double>& weights_before, const std::string& data_now,
                           data::Loader& loader);

/// Returns the default number of rows of a micro-batch: 64 for image models, 1 for all others.
i64 default_micro_batch_size(const models::ModelConfig& model);

/// Returns the number of threads that read data: --workers if given, otherwise the number of threads with which the rank computes.
int loader_workers(const TrainConfig& config, const RankPlace& place);

/// Returns the shape of the attention, which all layers of a run share.
kernels::AttentionShape attention_shape(const models::ModelConfig& model, i64 micro_batch_size, i64 sequence_length, DType dtype);

/// Returns the loader options of data-parallel rank `rank` of config.data_ranks().
data::LoaderOptions loader_options(const TrainConfig& config, int rank);

}  // namespace spillway::trainer
