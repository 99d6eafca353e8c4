// A snapshot: one generation of the state, read in the background while training continues, from which a checkpoint is written. A thread of
// its own runs the save, which asks for the pieces; between it and the optimizer's Steps is a queue of planned memory.
//
// Invariants: every piece that this rank saves is passed to the save once, with the bytes of that generation. No piece is overwritten
// before it is taken, because the Stepper calls before() ahead of each chunk that it updates. A piece on nvme is handed over by the Step
// that reads it anyway, so nothing is read twice. Pieces in memory are walked by the snapshot's thread (through the queue if they are in
// GPU memory); if a Step comes first, it copies the piece. Frozen weights, which no Step touches, are walked in every tier. If a slow save
// exhausts the patience of the Steps, pieces on nvme, whose bytes stay valid for one more step, are left behind, and the snapshot's thread
// reads them later.
//
// Thread safety: before() and hand_over() are called on the optimizer lane, step_ended() and drain() while no lane runs, all others from
// any thread.
#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <thread>

#include "parallel/state/snapshot_pieces.h"

namespace spillway::parallel {

class Snapshot {
 public:
  using Visit = std::function<void(u16 group, TileRange, std::span<const std::byte> weights, std::span<const std::byte> state)>;
  /// Calls `visit` for every piece, in any order, as pieces become available.
  using Tiles = std::function<void(const Visit& visit)>;
  /// Writes the checkpoint. Runs on the snapshot's thread; an exception becomes the outcome's error.
  using Save = std::function<void(const Tiles& tiles)>;
  static constexpr double kPatient = std::numeric_limits<double>::infinity();

  struct Outcome {
    double blocked_s = 0;  // seconds that Steps waited for room in the queue, or for a piece being read
    double writing_s = 0;  // seconds that the save worked, without pauses and without waiting for pieces
    double seconds = 0;    // seconds from beginning to end
    i64 left_behind = 0;   // pieces on nvme that were left behind and read once more
    std::exception_ptr error;
  };

  /// Begins a snapshot of the state's current generation; no update may be deferred. Each buffer of `queue` must hold a piece.
  /// `patience_s`: how long Steps may wait in all for pieces whose bytes stay valid for one more step.
  Snapshot(const Plan& plan, ModelState& state, offload::StagingRing& queue, Save save, double patience_s = kPatient);
  /// Cancels an unfinished save: asking for another piece throws there.
  ~Snapshot();

  /// A copy of a piece on its way through the queue.
  struct Copy {
    /// Copies tile `tile` of the piece into the buffer.
    void put(i64 tile, std::span<const std::byte> weight_tile, std::span<const std::byte> state_tile);
    size_t number;
    offload::StagingRing::Lease lease;
    std::span<std::byte> weights, state;  // parts of the lease's buffer
  };

  /// Called before a Step updates this chunk from generation `from`. If the piece is to be filled from what the Step reads, returns it, to
  /// be filled and passed to hand_over(). A piece that would be overwritten otherwise is copied before the call returns. Waits for room in
  /// the queue.
  std::optional<Copy> before(const Bucket& bucket, TileRange range, u64 from);
  void hand_over(Copy copy);
  /// Called after a step, when the state may have the next generation: the pieces that Steps left behind may be read from now on.
  void step_ended();

  /// Passes everything that is left to the save, reading pieces on nvme, and waits for the end.
  void drain();
  /// Returns true once the save has ended; outcome() is final then.
  bool over() const;
  const Outcome& outcome() const { return outcome_; }

 private:
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;
  enum class Stage : u8 { pending, busy, taken };  // busy: the snapshot's thread reads it in place
  bool ended(size_t number) const { return over_ || stages_[number] == Stage::taken; }
  std::optional<Copy> room_for(size_t number, double patience_s);
  std::optional<Copy> take(Lock& lock, size_t number, u64 from);
  void drain_group(u16 group);
  void run(const Save& save);
  void deliver(const Visit& visit);
  void visit_copy(Lock& lock, const Visit& visit);
  bool visit_in_place(Lock& lock, const Visit& visit, size_t number);
  std::optional<size_t> next_in_place();
  void wait(Lock& lock, const std::function<bool()>& until, Clock::duration at_most);

  const Plan& plan_;
  ModelState& state_;
  SnapshotPieces pieces_;
  offload::StagingRing& ring_;
  const double patience_s_;
  const Clock::time_point begin_ = Clock::now();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Stage> stages_;  // state of each piece
  std::deque<Copy> queue_;
  size_t left_;          // number of pieces not passed to the save yet
  size_t unwalked_;      // number of pieces that the walk, from the last to the first, has not reached
  bool passed_ = false;  // the Steps of this generation have gone over everything
  bool wanted_ = false;  // true while a Step waits for a piece
  bool draining_ = false, given_up_ = false, over_ = false;
  double idle_s_ = 0;
  Outcome outcome_;
  std::thread thread_;
};

}  // namespace spillway::parallel
