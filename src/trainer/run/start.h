// Decides where a training run begins: anew, from a checkpoint, or from the state that a dead process left on nvme.
// These functions work for one rank; train.cc makes all ranks agree. They read the run folder and delete nothing.
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

/// Keeps the global batch of the run to continue if that run had another number of data-parallel ranks, and derives the
/// gradient accumulation from it. Returns the number of data-parallel ranks that the run had before, or config.ranks
/// for a new run. Throws Error(usage), which lists the legal numbers of ranks, if the batch does not divide evenly.
i64 keep_global_batch(TrainConfig& config);

/// Start is the checkpoint from which a command resumes. All ranks find the same checkpoint.
struct Start {
  std::optional<std::filesystem::path> checkpoint;  // empty for a new run, or one that resumes from the state on nvme
  Progress progress;                                // all members are zero for a new run
  /// `left` lists damaged checkpoints that --resume auto skipped in favour of an earlier one, each with one line about the damage.
  std::vector<std::pair<std::filesystem::path, std::string>> left;
};
/// Replaces the path of --resume PATH by the checkpoint's canonical path. If the same command already
/// started the run in --out from this checkpoint, changes --resume to auto. The repeated command then
/// continues that run, whatever ended it, instead of starting over. `same` is passed on to number_changes().
void settle_resume(TrainConfig& config, const std::vector<std::string>& same = {});
/// Returns the folder of the run to which a checkpoint belongs. The result is empty if another program made the checkpoint.
std::filesystem::path run_of(const std::filesystem::path& checkpoint);
/// Finds the checkpoint to resume from by reading only manifests. With --resume auto a checkpoint whose manifest is damaged
/// is skipped, and the checkpoint before it is tried. With any other --resume a damaged manifest throws Error(data).
Start find_start(const TrainConfig& config);
/// Reads all files of the checkpoint in `start`. If a file is damaged,
/// skips the checkpoint or throws Error(data), as find_start() does.
Start find_whole(const TrainConfig& config, Start start);
/// Throws Error(data), which says that every checkpoint of the run is damaged.
[[noreturn]] void nothing_whole(const TrainConfig& config, const Start& start);
/// Throws Error(data), which says that --resume is `must` and there is nothing to resume from.
[[noreturn]] void nothing_to_go_on_from(const TrainConfig& config);
/// Throws Error(usage) if the run in folder `run` was started with other values of options that change its numbers. Does nothing if `run`
/// is empty.
void check_same_numbers(const TrainConfig& config, const std::filesystem::path& run, const std::vector<std::string>& same = {});

/// Recovery is the state that a dead process left on nvme, or the reason why the state is not used.
struct Recovery {
  // the record stored with the state; set if the state is used, otherwise at most one of the three reasons is set
  std::optional<Record> record;
  std::string written_over;  // why the state is overwritten: a checkpoint is as new, or the run diverged
  std::string set_aside;     // why the state is renamed and kept
  std::string damaged;
};
/// Decides whether to resume from the state on nvme. Throws Error(usage) if the state was made
/// with other values of options that change numbers, or if the state's step is beyond --steps.
Recovery recoverable(Session& session, const TrainConfig& config, const Progress& from_checkpoint, const std::vector<std::string>& same);
/// Fills the weights of a rank from `source`. The optimizer state is not filled.
void load_weights(parallel::Rank& rank, const models::WeightSource& source);
FreezeChange load_start(Session& session, const TrainConfig& config, const Start& start);

}  // namespace spillway::trainer
