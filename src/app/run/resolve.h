// Fills in the options that the flags left open. The values come from the model and the data. As a result the run's config.json shows every
// number that was used.
#pragma once
#include "app/checkpoints/checkpoint.h"
#include "app/checkpoints/model_source.h"
#include "app/flags/config.h"
#include "app/ranks/peers.h"
#include "data/loader/loader.h"
#include "kernels/sequence/attention_library.h"

namespace spillway::app {

/// Resolves what is needed before the data is opened: learning rate, sequence length, rows of a micro-batch, dropout. Writes the dropout
/// and the attention implementation to `source.config`. Throws Error(usage) for an --attention that cannot be used, for a sequence longer
/// than the model's positions, and for flags that do not apply to the kind of model (image or text).
void resolve_model(TrainConfig& config, ModelSource& source);
/// Resolves what depends on the data: the number of steps and of warm-up steps.
void resolve_steps(TrainConfig& config, const data::Loader& loader);
/// Returns a log line that says what an epoch of the resolved run is: its rows and steps, the size of its last step or the rows that are
/// dropped, and how many epochs the run has.
std::string epoch_note(const TrainConfig& config, const data::Loader& loader, bool images);
/// In older versions of this program a step could cross the end of an epoch. If such a version began this run, returns a note that says
/// what differs from here on; else returns an empty text.
std::string older_epochs_note(const Progress& progress, const data::Loader& loader);
/// Decides at which row each source of a weighted mixture resumes. Tells the loader, and stores the decision in `progress`, from which
/// later checkpoints save it. `weights_before` are the mixture weights that the run to resume was started with. They are needed because an
/// older program did not record them in its checkpoints; they are empty if the run's data was no mixture. `data_now` is the
/// Loader::fingerprint() of the current data. Returns a note for the log, or an empty text.
std::string settle_mixture(Progress& progress, const std::vector<double>& weights_before, const std::string& data_now,
                           data::Loader& loader);

/// Returns the default number of rows of a micro-batch: 64 for image models, 1 for others.
i64 default_micro_batch_size(const models::ModelConfig& model);

/// Returns the number of threads that read data: --workers, or else the number of threads that the rank computes with.
int loader_workers(const TrainConfig& config, const RankPlace& place);

/// Returns the shape of the attention, which is the same in all layers of a run.
kernels::AttentionShape attention_shape(const models::ModelConfig& model, i64 micro_batch_size, i64 sequence_length, DType dtype);

/// Returns the loader options of data-parallel rank `rank` of config.data_ranks().
data::LoaderOptions loader_options(const TrainConfig& config, int rank);

}  // namespace spillway::app
