// Makes the optimizer's updates (Step instructions): updates a bucket from one generation (copy of weights and state) to the next, in a
// stream of chunks of tiles. Data in memory is updated where it lies (in place if memory holds one generation only). Data on nvme flows
// through the staging ring: some chunks are read ahead, one is computed, and the others are being written. If all data lies on a GPU, the
// GPU updates it, on the queue of the current stream. If only some data lies on a GPU, that data flows through the ring too, or, where the
// plan says so (Plan::streams_step), the GPU makes the update and all other data flows through its memory (update_stream.h). When step()
// returns, writes may still be in progress; land() and drain() wait for them. Used by the optimizer thread. An update on the CPU runs on
// the threads of the current stream.
//
// A parameter that its rule updates as a whole (Muon, Adafactor) takes two passes. The first pass computes the parameter's update direction
// in planned memory, from the gradient and the state (and the weight), which it gathers there (stepper_matrices.cc). The second pass moves
// the parameter's tiles in this direction.
#pragma once
#include <deque>

#include "optim/adamw_tile.h"
#include "optim/rules/adafactor.h"
#include "optim/rules/settings.h"
#include "parallel/comm/pending.h"
#include "parallel/state/model_state.h"
#include "parallel/state/snapshot.h"

namespace spillway::parallel {

/// Holds a learning rate and a weight decay for some parameters, if they differ from those of all others.
struct OwnRates {
  double learning_rate = 0;
  std::optional<double> weight_decay;  // weight decay of these parameters; empty: the decay in the settings
  // The number of updates made before these parameters were trained. Update::t minus this number is the number of their own updates.
  i64 updates_before = 0;
};

/// All values that one update needs, except for the data.
struct Update {
  // hyperparameters of the rule that the state format names
  optim::RuleSettings settings = optim::AdamSettings{.decoupled_weight_decay = true};
  double learning_rate = 0;         // replaces the learning rate in the settings
  std::vector<OwnRates> own_rates;  // rates for parameters that do not use the common learning rate and decay
  std::vector<u16> own_rates_of;    // for each parameter: index of its entry in own_rates plus 1; 0, or no entry: the common rates
  i64 t = 1;                        // the number of this update among those applied, counted from 1
  double gradient_scale = 1;        // factor by which gradients are multiplied: clip factor / loss scale
  double average_decay = 0;         // decay of the weight average, if the state format has one
  RandomKey random;                 // key for the stochastic rounding of bf16 and int8 moments
  optim::Isa isa = optim::Isa::best;
};

class Stepper {
 public:
  Stepper(const Plan& plan, ModelState& state) : plan_(plan), state_(state) {}

  /// Updates these tiles of the bucket's group from generation `from` (a copy of the state) to from + 1. `gradient` is the gradient of all
  /// tiles of the group that this rank updates, if it stayed in memory; if `gradient` is empty, the gradient is read from its blob. Returns
  /// the microseconds of waiting for transfers.
  double step(const Bucket& bucket, TileRange tiles, const Update& update, u64 from, std::span<std::byte> gradient);
  /// Returns true if step() only puts the update of this bucket on the queue of the
  /// current stream. `given` says that the gradient is passed to step().
  bool only_queues(const Bucket& bucket, bool given) const { return !snapshot_ && plan_.steps_on_gpu(bucket.group, given); }
  /// Returns true if step() of this group ends with copies to or from the GPU, on the queues that the state has for them. Not meant for
  /// updates for which only_queues() is true.
  bool leaves_copies(u16 group, bool given) const {
    const offload::Blob* state = state_.optimizer(group);
    return plan_.streams_step(group, given) || state_.weights(group).on_gpu() || (state && state->on_gpu());
  }
  /// Waits until the writes of this group's updates are complete.
  void land(u16 group);
  /// Waits until the writes of all updates are complete.
  void drain();
  /// Sets the snapshot that gets its pieces before updates overwrite them; null: none. Called between steps.
  void keep_for(Snapshot* snapshot) { snapshot_ = snapshot; }

 private:
  struct Operand {
    offload::Blob* blob = nullptr;  // the blob of the data; null if there is no data, or if its memory was passed in
    i64 tile_bytes = 0;
    std::span<std::byte> old, next;  // bytes before and after the update; the same bytes if the update is done in place
    // staged: the data is in the staging ring; read: it is an input; written: it is an output; there: the bytes are in GPU memory
    bool staged = false, read = false, written = false, there = false;
    std::span<std::byte> of(i64 tile, std::span<std::byte> all) const {
      return all.subspan(static_cast<size_t>(tile * tile_bytes), static_cast<size_t>(tile_bytes));
    }
  };
  struct Scalars {
    optim::Scalars<double> decayed, plain;
  };
  struct AllScalars {
    std::vector<Scalars> rates;  // the scalars for parameters that use the common rates, then those for each entry of own_rates
    optim::Scalars<double> statistics;
    const std::byte* direction = nullptr;  // update direction of a parameter that is updated as a whole; null otherwise
  };
  struct Chunk {
    TileRange range;       // range of tiles within the group
    u64 from = 0;          // generation (version of the state) from which the update is computed
    bool streams = false;  // the GPU makes the update (Plan::streams_step)
    std::optional<offload::StagingRing::Lease> lease;
    Operand weights, gradients, state;
    Pending reads;  // declared after the loan of the buffer, so that reads are complete before the buffer is returned
  };
  i64 chunk_tiles(u16 group, bool streams) const;
  size_t read_ahead() const;
  AllScalars scalars_of(const Bucket& bucket, const Update& update) const;
  static const optim::Scalars<double>& scalars_for(const Segment& segment, const AllScalars& scalars, const Update& update);
  static std::vector<optim::TilePart> parts_of(const Group& group, i64 begin, i64 end, const AllScalars& scalars, const Update& update);
  // Returns the format of the data that an optimizer update of the group reads and writes.
  optim::StateFormat format_of(const Group& group) const;
  static optim::RoundingNoise noise_of(u16 group, const Update& update, i64 first_element);
  // Goes over the tiles chunk by chunk, while the next chunks are being read. Calls
  // `finish` for each chunk, in order, once the chunk has been read.
  enum class Pass : u8 { direction, update };
  void go_over(const Bucket& bucket, TileRange tiles, u64 from, std::span<std::byte> gradient, Pass pass,
               const std::function<void(Chunk)>& finish);
  Chunk open(const Bucket& bucket, TileRange range, u64 from, std::span<std::byte> gradient, Pass pass);
  Operand given(Chunk& chunk, const Bucket& bucket, std::span<std::byte> gradient, i64& used_bytes);
  std::span<std::byte> staging(Chunk& chunk, i64 bytes, i64& used_bytes);
  void step_on_gpu(const Bucket& bucket, TileRange tiles, const AllScalars& scalars, const Update& update, u64 from,
                   std::span<std::byte> gradient);
  // Lets the GPU update a chunk, which has been read.
  void stream(const Bucket& bucket, Chunk chunk, const AllScalars& scalars, const Update& update);
  void queue_update(const Bucket& bucket, Chunk& chunk, const AllScalars& scalars, const Update& update);
  // Waits until the chunk that has been on the GPU for the longest time has left it, and begins to write it.
  void take_back();
  Operand operand(Chunk& chunk, offload::Blob& blob, i64& used_bytes, bool read, bool written);
  // Computes the update direction of a parameter and returns it. Adafactor also determines a factor for the step, by which all step sizes
  // in `scalars` are multiplied.
  const std::byte* direction_of(const Bucket& bucket, TileRange tiles, AllScalars& scalars, const Update& update, u64 from,
                                std::span<std::byte> gradient);
  optim::AdafactorStep adafactor_step(const optim::StateFormat& format, const Segment& segment) const;
  // Returns the offset in bytes of this tile's part of the update direction.
  i64 direction_bytes(const Bucket& bucket, i64 tile) const;
  void gather_direction(const Bucket& bucket, const Chunk& chunk, const AllScalars& scalars, const Update& update);
  void gather_adafactor(const Bucket& bucket, const Chunk& chunk, const AllScalars& scalars, const Update& update);
  // Verifies the checksum of a tile that was read into the ring.
  void verify(const Operand& operand, const Chunk& chunk, i64 tile);
  // Verifies one tile of a chunk, and copies it for a snapshot if `copy` is not null.
  void look_at(const Chunk& chunk, i64 tile, Snapshot::Copy* copy);
  static void stamp(const Chunk& chunk, i64 tile);
  void update_all(const Bucket& bucket, const Chunk& chunk, const AllScalars& scalars, const Update& update);
  void update(const Bucket& bucket, const Chunk& chunk, i64 tile, const AllScalars& scalars, const Update& update, Snapshot::Copy* copy);
  void close(const Bucket& bucket, Chunk chunk);

  const Plan& plan_;
  ModelState& state_;
  Snapshot* snapshot_ = nullptr;
  struct Written {
    u16 group = 0;
    offload::StagingRing::Lease lease;
    Pending writes;  // declared after the loan of the buffer, so that writes are complete before the buffer is returned
  };
  std::deque<Written> writing_;
  std::deque<std::pair<const Bucket*, Chunk>> on_gpu_;  // chunks with bytes in the staging ring that the GPU updates
  double waited_us_ = 0;                                // microseconds for which the current step() has waited for transfers
};

}  // namespace spillway::parallel
