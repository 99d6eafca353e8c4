// One generation of the state, handed out in the background while training goes on from it: what a checkpoint is written from. A thread of
// its own runs the save, which asks for the pieces; between it and the Steps is a queue of planned memory.
// Invariants: every piece that this rank saves is handed out once, with the bytes of that generation; they are not written over before the
// piece is taken, for the Stepper calls before() ahead of each chunk it updates. What lies on nvme is handed over by the Step that reads it
// anyway, so nothing more is read; what lies in memory is walked by the snapshot's thread (through the queue, if it is a GPU's), and a Step
// that comes first copies it; frozen weights, which no Step passes, are walked wherever they lie. Where the Steps' patience with a slow
// save is at its end, a piece on nvme, whose bytes stand for one more step, is left behind and read by the snapshot's thread.
// Thread-safety: before() and hand_over() on the optimizer lane, step_ended() and drain() while no lane runs, the rest from anywhere.
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
  /// Calls visit for every piece, in any order, as they come.
  using Tiles = std::function<void(const Visit& visit)>;
  /// Runs on the snapshot's thread; what it throws is the outcome's error.
  using Save = std::function<void(const Tiles& tiles)>;
  static constexpr double kPatient = std::numeric_limits<double>::infinity();

  struct Outcome {
    double blocked_s = 0;  // that Steps waited for room in the queue, or for a piece under way
    double writing_s = 0;  // that the save worked: without its rests, and without waiting for pieces
    double seconds = 0;    // from the beginning to the end
    i64 left_behind = 0;   // pieces on nvme that were read once more
    std::exception_ptr error;
  };

  /// Of the state's generation now; no update is deferred. The queue's buffers hold a piece each. `patience_s`: what the first Steps may
  /// wait in all for pieces whose bytes stand for one more step.
  Snapshot(const Plan& plan, ModelState& state, offload::StagingRing& queue, Save save, double patience_s = kPatient);
  /// An unfinished save gets no more pieces: what asks for them throws.
  ~Snapshot();

  /// A piece on its way through the queue.
  struct Copy {
    /// Tile `tile` of the piece.
    void put(i64 tile, std::span<const std::byte> weight_tile, std::span<const std::byte> state_tile);
    size_t number;
    offload::StagingRing::Lease lease;
    std::span<std::byte> weights, state;  // in the lease
  };

  /// Before a Step updates this chunk from generation `from`: the piece, if it is to be filled from what the Step reads, and then handed
  /// over. What else must not be written over is copied here and now. Waits for room in the queue.
  std::optional<Copy> before(const Bucket& bucket, TileRange range, u64 from);
  void hand_over(Copy copy);
  /// The state's generation may be the next: then what the Steps left behind may be read.
  void step_ended();

  /// Hands out all that is left, reading what lies on nvme, and waits for the end.
  void drain();
  /// The save has ended; then outcome() stands.
  bool over() const;
  const Outcome& outcome() const { return outcome_; }

 private:
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;
  enum class Stage : u8 { pending, busy, taken };  // busy: the snapshot's thread reads it where it lies
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
  std::vector<Stage> stages_;  // by piece
  std::deque<Copy> queue_;
  size_t left_;          // pieces not visited yet
  size_t unwalked_;      // pieces that the walk, from the last to the first, has not come to
  bool passed_ = false;  // the Steps of this generation have gone over all of it
  bool wanted_ = false;  // a Step waits
  bool draining_ = false, given_up_ = false, over_ = false;
  double idle_s_ = 0;
  Outcome outcome_;
  std::thread thread_;
};

}  // namespace spillway::parallel
