// One generation of the state, handed out in the background while training goes on from it: what a checkpoint is written from. It is cut
// into pieces, the chunks of tiles that the Stepper works by. A thread of its own runs the save, which asks for the pieces.
// Invariants: every piece is handed out once, with the bytes of that generation; they are not written over before the piece is taken, for
// the Stepper calls before() ahead of each chunk it updates. What lies on nvme is handed over by the Step that reads it anyway, so nothing
// more is read; what lies in memory is walked by the snapshot's thread, and a Step that comes first copies it. Frozen weights, which no
// Step passes, are walked wherever they lie. Memory: the queue's. Thread-safety: before() and hand_over() on the optimizer lane, drain()
// while no lane runs, the rest from anywhere.
#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <thread>

#include "parallel/model_state.h"

namespace spillway::parallel {

class Snapshot {
 public:
  using Visit = std::function<void(u16 group, TileRange, std::span<const std::byte> weights, std::span<const std::byte> state)>;
  /// Calls visit for every piece, in any order, as they come.
  using Tiles = std::function<void(const Visit& visit)>;
  /// Runs on the snapshot's thread; what it throws is the outcome's error.
  using Save = std::function<void(const Tiles& tiles)>;

  struct Outcome {
    double blocked_s = 0;  // that Steps waited for room in the queue, or for a piece under way
    double writing_s = 0;  // that the save worked: without its rests, and without waiting for pieces
    double seconds = 0;    // from the beginning to the end
    std::exception_ptr error;
  };

  /// Of the state's generation now; no update is deferred. The queue's buffers hold a piece each, at least two.
  Snapshot(const Plan& plan, ModelState& state, offload::StagingRing& queue, Save save);
  /// An unfinished save gets no more pieces: what asks for them throws.
  ~Snapshot();

  /// A piece being copied out by a Step.
  struct Copy {
    /// Tile `tile` of the piece.
    void put(i64 tile, std::span<const std::byte> weight_tile, std::span<const std::byte> state_tile);
    size_t piece;
    offload::StagingRing::Lease lease;
    std::span<std::byte> weights, state;  // in the lease
  };

  /// Before a Step updates this chunk from generation `from`: the piece, if it is still wanted, to be filled from what the Step reads and
  /// handed over. What lies in memory is copied here and now. Waits for room in the queue.
  std::optional<Copy> before(const Bucket& bucket, TileRange range, u64 from);
  void hand_over(Copy copy);

  /// Hands out all that is left, reading what lies on nvme, and waits for the end.
  void drain();
  /// The save has ended; then outcome() stands.
  bool over() const;
  const Outcome& outcome() const { return outcome_; }

 private:
  using Clock = std::chrono::steady_clock;
  enum class Stage : u8 { pending, busy, taken };  // busy: the snapshot's thread is at it
  struct Piece {
    u16 group = 0;
    TileRange range;
    Stage stage = Stage::pending;
  };
  bool frozen(u16 group) const { return plan_.layout.groups[group].frozen; }
  bool staged(u16 group) const;
  bool walked(u16 group) const { return frozen(group) || !staged(group); }
  /// The generation whose Step hands the piece over, or is the first to write where it lies.
  u64 due(u16 group) const;
  Copy room_for(size_t piece);
  void copy_from_memory(Copy& copy);
  void drain_group(u16 group);
  void run(const Save& save);
  void deliver(const Visit& visit);
  void visit_copy(std::unique_lock<std::mutex>& lock, const Visit& visit);
  void visit_walked(std::unique_lock<std::mutex>& lock, const Visit& visit, Piece& piece);
  std::span<const std::byte> at_rest(offload::Blob& blob, TileRange range);
  Piece* next_walked();
  void wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& until, Clock::duration at_most);

  const Plan& plan_;
  ModelState& state_;
  offload::StagingRing& ring_;
  const u64 generation_;
  const Clock::time_point begin_ = Clock::now();
  std::vector<size_t> first_piece_;  // by bucket

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Piece> pieces_;
  std::deque<Copy> queue_;
  std::optional<offload::StagingRing::Lease> reading_;  // frozen weights from nvme; taken before any Step can want room
  size_t left_ = 0;                                     // pieces not visited yet
  size_t unwalked_;                                     // pieces that the walk, from the last to the first, has not come to
  bool wanted_ = false;                                 // a Step waits
  bool draining_ = false, given_up_ = false, over_ = false;
  double idle_s_ = 0;
  Outcome outcome_;
  std::thread thread_;
};

}  // namespace spillway::parallel
