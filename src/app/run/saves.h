// The saves of a run: begun between two steps, written by a snapshot's thread while training goes on, told of when durable. One at a time.
// Each rank writes its part; between steps they agree that all have, and the first one then makes it a checkpoint (one rank alone at once).
// Used by the trainer's thread, by all ranks alike. A save that fails is a warning, and the checkpoint before stands, unless it must not.
// Of older checkpoints those beyond --keep are removed, but never the best one nor the newest that is known to be good: one is good once
// its weights gave a finite loss, which a later step or a validation shows.
#pragma once
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <optional>

#include "app/checkpoints/checkpoint.h"
#include "app/node/console.h"
#include "app/ranks/peers.h"
#include "app/record/time_ahead.h"
#include "app/run/run_folder.h"
#include "app/run/session.h"

namespace spillway::app {

class Saves {
 public:
  /// `first_step`: where the run goes on; of a checkpoint of that step it is not known whether it is good.
  Saves(Session& session, RunFolder& folder, Console& console, const Peers& peers, i64 keep, i64 first_step);
  /// A save under way is given up.
  ~Saves() { session_.rank().end_snapshot(); }
  Saves(const Saves&) = delete;
  Saves& operator=(const Saves&) = delete;

  /// A checkpoint of the state as it is, settled. Waits for the save before. `patience_s`: as Rank::begin_snapshot. `must`: as finish().
  void begin(const Progress& progress, double patience_s, bool must);
  /// Told of each checkpoint that is durable, by the trainer's thread; on all ranks.
  void on_saved(std::function<void(i64 step)> saved) { saved_ = std::move(saved); }
  /// The checkpoint of that step stays, however many come after it. No save is under way.
  void keep_step(std::optional<i64> step) { kept_step_ = step; }
  /// After each step. `good`: the newest step whose weights gave a finite loss. `sound`: false while it is not known whether the weights
  /// are of any use; then no checkpoint is removed.
  void judge(i64 good, bool sound);
  /// Checkpoints that are not known to be good are kept apart (set_checkpoint_aside): the run does not go on from them. All ranks together,
  /// no save under way. Returns where they are; on the first rank.
  std::vector<std::string> set_doubtful_aside();
  /// After each step, which took this long; tells of a save that has ended.
  void stepped(double seconds);
  /// Waits for a save under way; `must`: its error is thrown on.
  void finish(bool must);
  /// There is, or will be, a checkpoint of this step.
  bool has(i64 step) const { return step_ == step; }
  /// Of the newest checkpoint, this run's or one from before; -1: there is none.
  i64 saved_step() const { return saved_step_; }
  /// What a save takes when nothing else is done: the longest of the last ones. Before the first it is reckoned from the plan's bytes and
  /// the rate at which the disk of --out writes (spillway bench, else a constant).
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
  Console& console_;
  const Peers& peers_;
  const i64 keep_;
  std::unique_ptr<CheckpointWriter> writer_;
  Clock::time_point begin_;
  i64 saved_step_;
  std::optional<i64> kept_step_;
  // Also read by the snapshot's thread, which prunes.
  std::atomic<i64> good_;
  std::atomic<bool> sound_ = true;
  std::atomic<bool> spared_ = false;  // a checkpoint that may go by now
  std::function<void(i64 step)> saved_;
  i64 step_ = -1;         // of the last one begun, unless it failed
  double before_s_ = 0;   // of the one under way: what its beginning took,
  double blocked_s_ = 0;  // that with what finish() waited,
  double longer_s_ = 0;   // and by how much steps took longer than usual
  i64 plain_steps_ = 0;
  std::deque<double> usual_s_;  // the last few steps beside which nothing was saved
  LongestLately took_;
};

}  // namespace spillway::app
