// Saves writes the checkpoints of a run. A save begins between two steps and is written by the snapshot's thread while training
// goes on. It is reported once it is durable. Only one save is under way at a time. Each rank writes its part. Between steps the
// ranks agree that all parts are written, and the first rank commits them as a checkpoint (a single rank commits at once). All
// ranks make the same calls, each on its trainer's thread. If a save fails, a warning is printed and the previous checkpoint
// remains; for a save with `must`, the error is thrown. Older checkpoints beyond --keep are removed, except the best one and the
// newest that is known to be good. A checkpoint is good once its weights gave a finite loss in a later step or a validation.
#pragma once
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <optional>

#include "trainer/checkpoints/checkpoint.h"
#include "trainer/node/messages.h"
#include "trainer/ranks/peers.h"
#include "trainer/record/time_ahead.h"
#include "trainer/run/run_folder.h"
#include "trainer/run/session.h"

namespace spillway::trainer {

class Saves {
 public:
  /// `first_step` is the step at which the run begins or resumes. A checkpoint of that step is not yet known to be good.
  Saves(Session& session, RunFolder& folder, Messages& messages, const Peers& peers, i64 keep, i64 first_step);
  /// Abandons the save that is under way, if any.
  ~Saves() { session_.rank().end_snapshot(); }
  Saves(const Saves&) = delete;
  Saves& operator=(const Saves&) = delete;

  /// Begins a checkpoint of the current state. No update may be deferred in that state. Waits for the
  /// previous save. `patience_s` is the parameter of Rank::begin_snapshot, `must` the parameter of finish().
  void begin(const Progress& progress, double patience_s, bool must);
  /// Sets a function that is called for each durable checkpoint, on the trainer's thread of every rank.
  void on_saved(std::function<void(i64 step)> saved) { saved_ = std::move(saved); }
  /// Protects the checkpoint of step `step` from being removed. Must be called while no save is under way.
  void keep_step(std::optional<i64> step) { kept_step_ = step; }
  /// Must be called after each step. `good` is the newest step whose weights gave a finite
  /// loss. With `sound` false the current weights may be useless, and no checkpoint is removed.
  void judge(i64 good, bool sound);
  /// Collective. Renames all checkpoints that are not known to be good (set_checkpoint_aside), so that the run does not resume from them.
  /// Must be called while no save is under way. On the first rank, returns the new names.
  std::vector<std::string> set_doubtful_aside();
  /// Must be called after each step, with the step's duration. Reports a save that has ended.
  void stepped(double seconds);
  /// Waits for the save under way, if any. If the save failed, throws its error with `must` true, and otherwise prints it as a warning.
  void finish(bool must);
  /// Returns whether a checkpoint of this step exists or is being written.
  bool has(i64 step) const { return step_ == step; }
  /// Returns the step of the newest checkpoint, saved by this process or an earlier one. Returns -1 if there is none.
  i64 saved_step() const { return saved_step_; }
  /// Returns the seconds that a save takes when nothing else runs: the longest of the last few. Before the first save this is estimated
  /// from the bytes of a checkpoint and the write rate of the disk that holds --out (measured by `spillway bench`, or a constant).
  double seconds() const { return took_.seconds(); }

 private:
  using Clock = std::chrono::steady_clock;
  void make_writer(const Progress& progress);
  void commit(std::span<const std::string> written);
  void commit_together();
  void prune();
  void prune_spared();
  void tell(bool must);
  void warn(i64 step, const std::exception& error);
  double steps_lost_s(double waited_s) const;

  Session& session_;
  RunFolder& folder_;
  Messages& messages_;
  const Peers& peers_;
  const i64 keep_;
  std::unique_ptr<CheckpointWriter> writer_;
  Clock::time_point begin_;
  i64 saved_step_;
  std::optional<i64> kept_step_;
  // good_, sound_ and spared_ are atomic because the snapshot's thread reads them when it removes old checkpoints.
  std::atomic<i64> good_;
  std::atomic<bool> sound_ = true;
  std::atomic<bool> spared_ = false;  // true if an old checkpoint was kept that may be removed later
  std::function<void(i64 step)> saved_;
  i64 step_ = -1;         // step of the last save that was begun; -1 if that save failed
  double before_s_ = 0;   // seconds of training that begin() cost for the current save
  double blocked_s_ = 0;  // before_s_ plus the seconds waited in finish()
  double longer_s_ = 0;   // seconds by which the steps during the save were longer than usual, summed over these steps
  i64 plain_steps_ = 0;
  std::deque<double> usual_s_;  // durations in seconds of the last few steps that ran without a save
  LongestLately took_;
};

}  // namespace spillway::trainer
