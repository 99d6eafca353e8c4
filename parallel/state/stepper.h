// The optimizer's Step: a bucket's update from one generation into the next, streamed in chunks of tiles. What lies in memory is updated
// where it lies (in place where there is one slot); what lies on nvme flows through the staging ring: some chunks read ahead, one computed,
// the others written behind. What lies on a GPU altogether is updated there, on the queue of the stream in force; what lies there in part
// flows through the ring too. Writes may still be in flight when step() returns; land() and drain() wait for them. Used by the optimizer
// lane; the update itself is spread over the threads of the stream in force.
// What its rule steps as a whole goes by twice: its direction is gathered of gradient and state (and weight) in planned memory and made
// there (stepper_matrices.cc), then its tiles move along it.
#pragma once
#include <deque>

#include "optim/adamw_tile.h"
#include "optim/rules/adafactor.h"
#include "optim/rules/settings.h"
#include "parallel/comm/pending.h"
#include "parallel/state/model_state.h"
#include "parallel/state/snapshot.h"

namespace spillway::parallel {

/// Of some parameters.
struct OwnRates {
  double learning_rate = 0;
  std::optional<double> weight_decay;  // of all of them; empty: the settings', where it applies
  i64 updates_before = 0;              // applied before they were trained: their own number is Update::t less these
};

/// What one update needs beside the bytes.
struct Update {
  optim::RuleSettings settings = optim::AdamSettings{.decoupled_weight_decay = true};  // of the format's rule
  double learning_rate = 0;                                                            // instead of theirs
  std::vector<OwnRates> own_rates;                                                     // of parameters with rates of their own
  std::vector<u16> own_rates_of;  // by parameter which of them, from 1; 0, or no entry: none
  i64 t = 1;                      // number of this applied update
  double gradient_scale = 1;      // clip factor / loss scale
  double average_decay = 0;       // of the average, where the format has one
  RandomKey random;               // of the stochastic rounding of bf16 and int8 moments
  optim::Isa isa = optim::Isa::best;
};

class Stepper {
 public:
  Stepper(const Plan& plan, ModelState& state) : plan_(plan), state_(state) {}

  /// These tiles of the bucket's group, from generation `from` into from + 1. `gradient`: of what this rank steps of the group, where it
  /// did not leave memory; empty: from its blob. Returns the microseconds it waited for transfers.
  double step(const Bucket& bucket, TileRange tiles, const Update& update, u64 from, std::span<std::byte> gradient);
  /// A step of this bucket is put on the queue of the stream in force altogether. `given`: its gradient is handed in.
  bool only_queues(const Bucket& bucket, bool given) const { return !snapshot_ && plan_.steps_on_gpu(bucket.group, given); }
  /// A step of this group's buckets ends with copies on the state's queue to the GPU, unless all of it is only queued.
  bool writes_gpu(u16 group) const {
    const offload::Blob* state = state_.optimizer(group);
    return state_.weights(group).on_gpu() || (state && state->on_gpu());
  }
  /// Until the writes of this group's steps have landed.
  void land(u16 group);
  /// Until all have.
  void drain();
  /// Whom to let copy what a Step passes; null: nobody. Between steps.
  void keep_for(Snapshot* snapshot) { snapshot_ = snapshot; }

 private:
  struct Operand {
    offload::Blob* blob = nullptr;  // null: of memory handed in, or of nothing
    i64 tile_bytes = 0;
    std::span<std::byte> old, next;                      // the same where it is updated in place
    bool staged = false, read = false, written = false;  // in the ring; an input, an output
    std::span<std::byte> of(i64 tile, std::span<std::byte> all) const {
      return all.subspan(static_cast<size_t>(tile * tile_bytes), static_cast<size_t>(tile_bytes));
    }
  };
  struct Scalars {
    optim::Scalars<double> decayed, plain;
  };
  struct AllScalars {
    std::vector<Scalars> rates;  // of what has no rates of its own, then of each that are
    optim::Scalars<double> statistics;
    const std::byte* direction = nullptr;  // of a matrix that is stepped as a whole
  };
  struct Chunk {
    TileRange range;  // within the group
    u64 from = 0;     // generation
    std::optional<offload::StagingRing::Lease> lease;
    Operand weights, gradients, state;
    Pending reads;  // after the lease: settled before it goes back
  };
  size_t read_ahead() const;
  AllScalars scalars_of(const Bucket& bucket, const Update& update) const;
  static const optim::Scalars<double>& scalars_for(const Segment& segment, const AllScalars& scalars, const Update& update);
  static std::vector<optim::TilePart> parts_of(const Group& group, i64 begin, i64 end, const AllScalars& scalars, const Update& update);
  // Of what a Step of the group reads and writes.
  optim::StateFormat format_of(const Group& group) const;
  static optim::RoundingNoise noise_of(u16 group, const Update& update, i64 first_element);
  // Chunk by chunk, the next ones under way. `finish` takes each in order once its reads have come.
  enum class Pass : u8 { direction, update };
  void go_over(const Bucket& bucket, TileRange tiles, u64 from, std::span<std::byte> gradient, Pass pass,
               const std::function<void(Chunk)>& finish);
  Chunk open(const Bucket& bucket, TileRange range, u64 from, std::span<std::byte> gradient, Pass pass);
  Operand given(Chunk& chunk, const Bucket& bucket, std::span<std::byte> gradient, i64& used_bytes);
  std::span<std::byte> staging(Chunk& chunk, i64 bytes, i64& used_bytes);
  void step_on_gpu(const Bucket& bucket, TileRange tiles, const AllScalars& scalars, const Update& update, u64 from,
                   std::span<std::byte> gradient);
  Operand operand(Chunk& chunk, offload::Blob& blob, i64& used_bytes, bool read, bool written);
  // Adafactor's says by how much, too: all of the scalars' step sizes are multiplied by it.
  const std::byte* direction_of(const Bucket& bucket, TileRange tiles, AllScalars& scalars, const Update& update, u64 from,
                                std::span<std::byte> gradient);
  optim::AdafactorStep adafactor_step(const optim::StateFormat& format, const Segment& segment) const;
  // Before a tile of the group.
  i64 direction_bytes(const Bucket& bucket, i64 tile) const;
  void gather_direction(const Bucket& bucket, const Chunk& chunk, const AllScalars& scalars, const Update& update);
  void gather_adafactor(const Bucket& bucket, const Chunk& chunk, const AllScalars& scalars, const Update& update);
  // Of what was read into the ring.
  void verify(const Operand& operand, const Chunk& chunk, i64 tile);
  void update_all(const Bucket& bucket, const Chunk& chunk, const AllScalars& scalars, const Update& update);
  void update(const Bucket& bucket, const Chunk& chunk, i64 tile, const AllScalars& scalars, const Update& update, Snapshot::Copy* copy);
  void close(const Bucket& bucket, Chunk chunk);

  const Plan& plan_;
  ModelState& state_;
  Snapshot* snapshot_ = nullptr;
  struct Written {
    u16 group = 0;
    offload::StagingRing::Lease lease;
    Pending writes;  // after the lease: settled before it goes back
  };
  std::deque<Written> writing_;
  double waited_us_ = 0;  // of the step under way
};

}  // namespace spillway::parallel
