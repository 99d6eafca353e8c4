// A snapshot is one generation (complete copy) of weights and optimizer state. It is read in the background while training continues, and a
// checkpoint is written from it. The save runs on a separate thread and asks for the pieces of the state. A queue of planned memory lies
// between the optimizer's updates (Steps) and the save.
//
// Invariants: every piece that this rank saves is passed to the save once, with its bytes in that generation. No piece is overwritten
// before the snapshot has it, because the Stepper calls before() ahead of each chunk that it updates. A piece on nvme is handed over by the
// Step that reads it anyway, so it is not read twice. Pieces in memory are read by the snapshot's thread (through the queue if they are in
// GPU memory); if a Step gets to such a piece first, it copies the piece. Frozen weights, which no Step updates, are read by the snapshot's
// thread in every tier. If the save is so slow that the Steps would have to wait longer than allowed, they leave pieces on nvme behind,
// whose bytes stay valid for one more step, and the snapshot's thread reads these pieces later.
//
// Thread safety: before() and hand_over() are called on the optimizer thread, step_ended() and drain() while no instructions run. All other
// functions may be called from any thread.
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
  /// A Tiles function calls `visit` once for every piece, as soon as the piece is available. The order is arbitrary.
  using Tiles = std::function<void(const Visit& visit)>;
  /// A Save function writes the checkpoint. It runs on the snapshot's thread. An exception in it becomes the error of the outcome.
  using Save = std::function<void(const Tiles& tiles)>;
  static constexpr double kPatient = std::numeric_limits<double>::infinity();

  struct Outcome {
    double blocked_s = 0;  // seconds for which optimizer updates waited for room in the queue, or for a piece that was being read
    double writing_s = 0;  // seconds for which the save worked, without its pauses and its waits for pieces
    double seconds = 0;    // seconds from the snapshot's beginning to its end
    i64 left_behind = 0;   // number of pieces on nvme that optimizer updates left behind, so that they were read once more
    std::exception_ptr error;
  };

  /// Begins a snapshot of the state's current generation. No update may be deferred at this time. Each buffer of `queue` must have room
  /// for a piece. `patience_s` limits the total time that optimizer updates may wait for pieces whose bytes stay valid for one more step
  /// anyway.
  Snapshot(const Plan& plan, ModelState& state, offload::StagingRing& queue, Save save, double patience_s = kPatient);
  /// Cancels a save that has not ended: when it asks for another piece, an exception is thrown in it.
  ~Snapshot();

  /// A copy of a piece, on its way through the queue to the save.
  struct Copy {
    /// Copies tile `tile` of the piece into the buffer.
    void put(i64 tile, std::span<const std::byte> weight_tile, std::span<const std::byte> state_tile);
    size_t number;
    offload::StagingRing::Lease lease;
    std::span<std::byte> weights, state;  // where the weights and the state lie in the buffer
  };

  /// Called before the optimizer updates this chunk from generation `from` (a copy of the state). If the update itself will read the piece
  /// that this chunk is, returns a Copy, which the optimizer must fill and pass to hand_over(). If the piece would otherwise be
  /// overwritten, it is copied before this call returns. Waits for room in the queue.
  std::optional<Copy> before(const Bucket& bucket, TileRange range, u64 from);
  void hand_over(Copy copy);
  /// Called after a step, when the state may have advanced to its next generation (copy). After this call the pieces that optimizer updates
  /// left behind may be read.
  void step_ended();

  /// Passes all pieces that are left to the save, reading those on nvme, and waits until the save has ended.
  void drain();
  /// Returns true once the save has ended; outcome() does not change after that.
  bool over() const;
  const Outcome& outcome() const { return outcome_; }

 private:
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;
  // the stage of a piece; busy: the snapshot's thread is reading it where it lies; taken: it has been passed to the save
  enum class Stage : u8 { pending, busy, taken };
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
  std::vector<Stage> stages_;  // stage of each piece
  std::deque<Copy> queue_;
  size_t left_;          // number of pieces that have not yet been passed to the save
  size_t unwalked_;      // number of pieces that next_in_place() has not yet come to; it goes from the last piece to the first
  bool passed_ = false;  // true once the optimizer updates of the saved state have gone over all pieces
  bool wanted_ = false;  // true while an optimizer update waits for a piece
  bool draining_ = false, given_up_ = false, over_ = false;
  double idle_s_ = 0;
  Outcome outcome_;
  std::thread thread_;
};

}  // namespace spillway::parallel
