// Where a training run begins: anew, from a checkpoint, or from what a dead process left on nvme. Functions of one rank; train.cc has all
// ranks agree. They read the run folder, and give nothing up.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/checkpoints/checkpoint.h"
#include "app/flags/config.h"
#include "app/run/session.h"
#include "models/weights.h"

namespace spillway::app {

/// Of a run that was on another number of ranks its global batch; the accumulation follows from it. Returns the number of ranks it was on,
/// this one's for a new run. Error(usage) naming the legal numbers where the batch does not divide.
i64 keep_global_batch(TrainConfig& config);

/// The checkpoint a command goes on from. Of several ranks all find the same.
struct Start {
  std::optional<std::filesystem::path> checkpoint;  // none: a new run, or one that goes on from what lies on nvme
  Progress progress;                                // zeros of a new run
  /// Damaged ones that --resume auto left for an earlier one: which, and one line of what is wrong with it.
  std::vector<std::pair<std::filesystem::path, std::string>> left;
};
/// Of --resume PATH the checkpoint's whole path; and where the run in --out went on from it already, by the same command, --resume is auto:
/// so the same command goes on, whatever ended the run. `same`: as number_changes().
void settle_resume(TrainConfig& config, const std::vector<std::string>& same = {});
/// The run that a checkpoint belongs to; empty where it is none of ours.
std::filesystem::path run_of(const std::filesystem::path& checkpoint);
/// By the manifests. With --resume auto a checkpoint whose manifest is damaged is left for the one before; else Error(data).
Start find_start(const TrainConfig& config);
/// Reads all of `start`'s checkpoint; the same with what its files hold.
Start find_whole(const TrainConfig& config, Start start);
/// Error(data): every checkpoint of the run is damaged.
[[noreturn]] void nothing_whole(const TrainConfig& config, const Start& start);
/// Error(data): --resume is must, and there is nothing.
[[noreturn]] void nothing_to_go_on_from(const TrainConfig& config);
/// Error(usage) when `run`, where there is one, was started with other values that change numbers.
void check_same_numbers(const TrainConfig& config, const std::filesystem::path& run, const std::vector<std::string>& same = {});

/// What a dead process left on nvme.
struct Recovery {
  std::optional<Record> record;  // when it is wanted and further than the checkpoint; else why what is there is not, in words:
  std::string written_over;      // the checkpoint has more
  std::string set_aside;         // it may be wanted later
  std::string damaged;
};
/// Error(usage) when it was made with other values that change numbers, or is further than --steps.
Recovery recoverable(Session& session, const TrainConfig& config, const Progress& from_checkpoint, const std::vector<std::string>& same);
/// Fills a rank's weights, without moments.
void load_weights(parallel::Rank& rank, const models::WeightSource& source);
FreezeChange load_start(Session& session, const TrainConfig& config, const Start& start);

}  // namespace spillway::app
