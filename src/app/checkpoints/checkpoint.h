// Checkpoints of a run: <run>/checkpoints/step-00000100/ with manifest.json, config.json and model.safetensors as any Hugging Face tool
// loads them, of a run with adapters instead adapter_config.json and adapter_model.safetensors as PEFT loads them, with the base's
// fingerprint in the manifest; and optimizer.safetensors keyed by parameter name ("<name>.exp_avg", "<name>.exp_avg_sq", or what
// torch.optim calls the arrays of another rule; for bf16 and f16 weights "<name>.master"). Written beside, fsynced, renamed: a folder of
// that name is always whole. The manifest has checksums of all of it, and nothing is read but through them (data/folder_checksums.h).
// Streamed through the model's state a few tiles at a time. Thread-safe on different steps.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/checkpoints/model_source.h"
#include "app/checkpoints/standing.h"
#include "optim/loss_scale.h"
#include "parallel/run/rank.h"

namespace spillway::app {

/// Where a run stands, beside its weights and optimizer state.
struct Progress {
  i64 step = 0;                                // optimizer steps taken, skipped ones counted
  i64 updates = 0;                             // applied: Adam's t
  i64 cursor = 0;                              // windows of data consumed
  i64 tokens = 0;                              // trained on so far
  i64 schedule_steps = 0;                      // that the learning rate's curve spans; 0: not known
  std::optional<optim::LossScale> loss_scale;  // of the next step; none: 1 for good
  std::string made_with;                       // what the bits depend on beside the configuration: the instruction set
  std::string data;                            // Loader::fingerprint of what it was trained on; empty: not known
  Standing standing;                           // of its validations, and of its last losses
};

/// Progress and a line of metrics.jsonl as one JSON text: what a commit on nvme remembers of a step.
std::string to_record(const Progress& progress, const std::string& numbers_hash, const std::string& metrics_line);
struct Record {
  Progress progress;
  std::string numbers_hash, metrics_line;
};
/// Empty when the text is not one of ours.
std::optional<Record> parse_record(const std::string& text);

constexpr int kCheckpointFormat = 2;  // 1 had no checksums

std::filesystem::path checkpoint_path(const std::filesystem::path& run, i64 step);

/// A checkpoint as one rank writes its part of it. The first rank makes the folder, beside its final place, with files of their final
/// sizes; then the others join; each writes the tiles it is to save; when all have, the first one commits. Errors: Error(io); nothing
/// half-written stays.
class CheckpointWriter {
 public:
  /// Of the first rank.
  CheckpointWriter(const std::filesystem::path& run, const Progress& progress, const ModelSource& source, const nn::Sequential& model,
                   const parallel::Plan& plan);
  /// Of another rank: into the folder() that the first one made.
  CheckpointWriter(const std::filesystem::path& folder, const nn::Sequential& model, const parallel::Plan& plan);
  ~CheckpointWriter();

  const std::filesystem::path& folder() const;
  /// What `tiles` hands out, in any order, until it is on the disk; runs on a Snapshot's thread.
  void write(const parallel::Snapshot::Tiles& tiles);
  /// What write() wrote, for commit(): bytes and their checksums, as a text from rank to rank.
  std::string written() const;
  /// Of the first rank: from here on the checkpoint is there. `written`: by every rank.
  void commit(std::span<const std::string> written);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Bytes a checkpoint of this model takes.
i64 checkpoint_bytes(const nn::Sequential& model, const optim::StateFormat& format);

/// Checkpoints of a run, oldest first: folders of that name are whole unless something happened to them.
std::vector<std::filesystem::path> checkpoints(const std::filesystem::path& run);
/// The step that its name tells of the newest one; -1: there is none.
i64 newest_step(const std::filesystem::path& run);
/// `which`: "last", "best" (best.h) or a step number. Throws Error(data) naming what there is.
std::filesystem::path find_checkpoint(const std::filesystem::path& run, const std::string& which);
/// Throws Error(data): unreadable, damaged, or of a newer format.
Progress read_progress(const std::filesystem::path& checkpoint);
/// Whether there are checksums of it: format 1 had none.
bool has_checksums(const std::filesystem::path& checkpoint);
/// What is damaged in it, in words, one entry for each place; reads all of it. Empty: it is as it was saved, as far as is known.
std::vector<std::string> damage_of_checkpoint(const std::filesystem::path& checkpoint);
/// Fills weights, m and v. Throws Error(data) when a tensor is missing or has another shape, or a byte is not the one that was saved.
/// `source`: what the run trains, of which a base comes from its own folder.
void load_checkpoint(const std::filesystem::path& checkpoint, const ModelSource& source, const nn::Sequential& model, parallel::Rank& rank);
/// Removes all but the newest `keep`, that of step `best`, and the newest of those up to step `good`.
void prune_checkpoints(const std::filesystem::path& run, i64 keep, std::optional<i64> best = {}, std::optional<i64> good = {});
/// Those of the run that one which goes on from `from` (none: from what lies on nvme) at `step` does not descend from: the later ones; all,
/// where `from` is another run's.
std::vector<std::filesystem::path> not_before(const std::filesystem::path& run, const std::optional<std::filesystem::path>& from, i64 step);
/// Renames it to `<name>.<why>`: no longer one of the run's, its bytes kept. Returns the new name. Error(io).
std::filesystem::path set_checkpoint_aside(const std::filesystem::path& checkpoint, const std::string& why);
/// Removes what a process left that died while it pruned. Call it while the run folder's lock is held.
void remove_half_pruned(const std::filesystem::path& run);

}  // namespace spillway::app
