// Decides where a training run begins: anew, from a checkpoint, or from the state that a dead process left on nvme. These functions work
// for one rank; train.cc makes all ranks agree. They read the run folder and delete nothing.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/weights.h"
#include "trainer/checkpoints/checkpoint.h"
#include "trainer/run/session.h"
#include "trainer/settings/config.h"

namespace spillway::trainer {

/// If the run to continue had another number of data-parallel ranks, keeps the run's global batch and derives the gradient accumulation
/// from it. Returns the number of ranks that the run had before; for a new run returns config.ranks. Throws Error(usage), which lists the
/// legal numbers of ranks, if the batch does not divide.
i64 keep_global_batch(TrainConfig& config);

/// The checkpoint that a command resumes from. All ranks find the same one.
struct Start {
  std::optional<std::filesystem::path> checkpoint;  // none: a new run, or one that resumes from the state on nvme
  Progress progress;                                // all zeros for a new run
  /// Damaged checkpoints that --resume auto skipped in favour of an earlier one, each with one line about the damage.
  std::vector<std::pair<std::filesystem::path, std::string>> left;
};
/// Replaces the path of --resume PATH by the checkpoint's canonical path. If the same command already started the run in --out from this
/// checkpoint, changes --resume to auto. The repeated command then continues that run, whatever ended it, instead of starting over. `same`
/// is passed on to number_changes().
void settle_resume(TrainConfig& config, const std::vector<std::string>& same = {});
/// Returns the folder of the run that a checkpoint belongs to; empty if another program made it.
std::filesystem::path run_of(const std::filesystem::path& checkpoint);
/// Finds the checkpoint to resume from by reading only manifests. With --resume auto a checkpoint whose manifest is damaged is skipped, and
/// the checkpoint before it is taken. With any other --resume it throws Error(data).
Start find_start(const TrainConfig& config);
/// Reads all files of the checkpoint in `start`. If a file is damaged, skips the checkpoint or throws Error(data), by the rules of
/// find_start().
Start find_whole(const TrainConfig& config, Start start);
/// Throws Error(data): every checkpoint of the run is damaged.
[[noreturn]] void nothing_whole(const TrainConfig& config, const Start& start);
/// Throws Error(data): --resume is `must`, and there is nothing to resume from.
[[noreturn]] void nothing_to_go_on_from(const TrainConfig& config);
/// Throws Error(usage) if the run in folder `run` was started with other values of options that change its numbers. An empty `run` passes.
void check_same_numbers(const TrainConfig& config, const std::filesystem::path& run, const std::vector<std::string>& same = {});

/// The state that a dead process left on nvme, or the reason why it is not used.
struct Recovery {
  std::optional<Record> record;  // set if the state is to be used; else at most one of these reasons is set:
  std::string written_over;      // why the state is discarded: a checkpoint is as new, or the run diverged
  std::string set_aside;         // why the state is renamed and kept
  std::string damaged;
};
/// Decides whether to resume from the state on nvme. Throws Error(usage) if the state was made with other values of options that change
/// numbers, or if the state's step is beyond --steps.
Recovery recoverable(Session& session, const TrainConfig& config, const Progress& from_checkpoint, const std::vector<std::string>& same);
/// Fills the weights of a rank from `source`, but not the moments of its optimizer.
void load_weights(parallel::Rank& rank, const models::WeightSource& source);
FreezeChange load_start(Session& session, const TrainConfig& config, const Start& start);

}  // namespace spillway::trainer
