// Writes, finds and loads the checkpoints of a run. A checkpoint is a folder such as <run>/checkpoints/step-00000100/ with these files:
// - config.json and model.safetensors, which any Hugging Face tool loads. Models whose folders store several parameters in one tensor, such
//   as gpt-oss, have weights.safetensors instead, which only this program reads: `export` joins the parameters. A run with adapters has
//   adapter_config.json and adapter_model.safetensors instead, which PEFT loads, and the base model's fingerprint in the manifest.
// - optimizer.safetensors, keyed by parameter name: "<name>.exp_avg", "<name>.exp_avg_sq", or the names that torch.optim gives the
//   arrays of another rule, and "<name>.master" for bf16 and f16 weights.
// - manifest.json, which holds the progress and checksums of all files (data/safetensors/folder_checksums.h).
// Every read is verified by the checksums. A checkpoint is written under a temporary name, fsynced and renamed, so a folder of the final
// name is always complete. Only a small part of the state is in memory at a time. Functions may run concurrently on checkpoints of
// different steps.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/loader/mixture.h"
#include "optim/loss_scale.h"
#include "parallel/run/rank.h"
#include "trainer/checkpoints/model_source.h"
#include "trainer/checkpoints/standing.h"
#include "trainer/checkpoints/thaw.h"

namespace spillway::trainer {

/// kNumberRules is the version of the rules by which this program computes a run's numbers. Version 1 stands for
/// all older programs, which recorded no version. In version 1 the router loss counted padding, the embedding row
/// of pad_token_id had a gradient from the inputs, a tied head was never compared with the folder's
/// lm_head.weight, a step could span the end of an epoch, and packed rows of sequential data had no defined order.
constexpr i64 kNumberRules = 2;

/// Progress is the state of a run apart from its weights and optimizer state.
struct Progress {
  i64 step = 0;                                // optimizer steps taken, skipped steps included
  i64 updates = 0;                             // optimizer updates applied, which is Adam's t
  i64 cursor = 0;                              // rows of data consumed before the next step (Loader)
  i64 tokens = 0;                              // tokens trained on so far, without padding, which older programs counted too
  i64 schedule_steps = 0;                      // steps that the learning-rate schedule spans; 0: unknown
  std::optional<optim::LossScale> loss_scale;  // loss scale of the next step; empty: the scale is 1 and never changes
  std::string made_with;                       // instruction set or GPU, and cuDNN engines, on which the rounding of the numbers depends
  std::string data;                            // Loader::fingerprint of the training data; empty: unknown
  std::vector<Thaw> thawed = {};               // parameters that were frozen at first; not stored with the state on nvme
  Standing standing;                           // results of the run's validations, and whether its last losses were finite
  i64 rules = kNumberRules;                    // version of the number rules that the run has been trained by so far
  std::optional<data::MixtureStart> mixture;   // position in a data mixture; empty: no mixture, or saved by an older program
};

/// Returns a JSON text that holds `progress` and a line of metrics.jsonl. Every step whose state is kept on nvme stores this text, called
/// the record, beside the state.
std::string to_record(const Progress& progress, const std::string& numbers_hash, const std::string& metrics_line);
struct Record {
  Progress progress;
  std::string numbers_hash, metrics_line;
};
/// Parses the text of to_record(). Returns nothing for any other text.
std::optional<Record> parse_record(const std::string& text);

constexpr int kCheckpointFormat = 2;  // format 1 had no checksums

std::filesystem::path checkpoint_path(const std::filesystem::path& run, i64 step);

/// CheckpointWriter writes one rank's part of a checkpoint. The first rank creates the folder under a temporary name, and in
/// it the files in their final sizes. Next the other ranks open the folder, and each rank writes its own tiles (pieces of
/// 16,384 elements). When all have finished, the first rank commits. Throws Error(io). An unfinished checkpoint is removed.
class CheckpointWriter {
 public:
  /// Creates the folder of the checkpoint. Used by the first rank.
  CheckpointWriter(const std::filesystem::path& run, const Progress& progress, const ModelSource& source, const nn::Sequential& model,
                   const parallel::Plan& plan);
  /// Opens the folder that the first rank created, which is the first rank's folder(). Used by all other ranks.
  CheckpointWriter(const std::filesystem::path& folder, const nn::Sequential& model, const parallel::Plan& plan);
  ~CheckpointWriter();

  const std::filesystem::path& folder() const;
  /// Writes all tiles that `tiles` supplies, in any order, and returns when they are on the disk. Runs on a Snapshot's thread.
  void write(const parallel::Snapshot::Tiles& tiles);
  /// Returns the number and the checksums of the bytes that write() wrote, as text.
  /// Each rank sends the text to the first rank, which passes all texts to commit().
  std::string written() const;
  /// Completes the checkpoint and gives the folder its final name. Used by the first rank. `written` holds the results of written() of all
  /// ranks.
  void commit(std::span<const std::string> written);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Returns the bytes that a checkpoint of this model takes.
i64 checkpoint_bytes(const nn::Sequential& model, const optim::StateFormat& format);

/// Returns the checkpoints of a run, oldest first: the folders with the final name
/// of a checkpoint. Such folders are complete unless they were damaged later.
std::vector<std::filesystem::path> checkpoints(const std::filesystem::path& run);
/// Returns the step in the name of the newest checkpoint, or -1 if there is none.
i64 newest_step(const std::filesystem::path& run);
/// Returns the checkpoint that `which` names: "last", "best" (best.h) or a step number.
/// Throws Error(data), which lists the existing checkpoints, if there is no such checkpoint.
std::filesystem::path find_checkpoint(const std::filesystem::path& run, const std::string& which);
/// Reads the Progress of a checkpoint. Throws Error(data) if the checkpoint is unreadable, damaged, or of a newer format.
Progress read_progress(const std::filesystem::path& checkpoint);
/// Returns the text of a key in a folder's manifest.json. The result is empty if the file or
/// the key is missing or the value is not a text. Throws Error(data) for a damaged manifest.
std::string manifest_text(const std::filesystem::path& folder, const char* key);
/// Returns whether the checkpoint has checksums. Checkpoints of format 1 have none.
bool has_checksums(const std::filesystem::path& checkpoint);
/// Reads a whole checkpoint and returns a description of each damaged place. The result is empty if there is no damage.
std::vector<std::string> damage_of_checkpoint(const std::filesystem::path& checkpoint);
/// Loads weights and optimizer state into `rank`. `source` is the model that the run trains; the base model of
/// adapters is loaded from its own folder. Parameters that were frozen when the checkpoint was saved start with fresh
/// optimizer state. Throws Error(data) if a tensor is missing or has another shape, or if a checksum does not match.
FreezeChange load_checkpoint(const std::filesystem::path& checkpoint, const ModelSource& source, const nn::Sequential& model,
                             parallel::Rank& rank);
/// Removes all checkpoints except the newest `keep`, the checkpoint of step `best`, and the newest checkpoint of a step up to `good`.
void prune_checkpoints(const std::filesystem::path& run, i64 keep, std::optional<i64> best = {}, std::optional<i64> good = {});
/// Returns the checkpoints in `run` that do not belong to the past of a run that resumes at step
/// `step`. The run resumes from the checkpoint `from` or, if `from` is empty, from the state on nvme.
/// The result holds the checkpoints after `step`, or all of them if `from` belongs to another run.
std::vector<std::filesystem::path> not_before(const std::filesystem::path& run, const std::optional<std::filesystem::path>& from, i64 step);
/// Renames a checkpoint to NAME.WHY. It no longer counts as a checkpoint of the run, but
/// its files are kept. Returns the new path. Throws Error(io) if the folder cannot be renamed.
std::filesystem::path set_checkpoint_aside(const std::filesystem::path& checkpoint, const std::string& why);
/// Removes incomplete checkpoints that dead processes left: those they were writing, and
/// those that prune_checkpoints() was removing. The caller must hold the run folder's lock.
void remove_rests(const std::filesystem::path& run);

}  // namespace spillway::trainer
