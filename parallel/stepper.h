// The optimizer's Step: a bucket's update, streamed in chunks of tiles. What lies in memory is updated in place; what lies on nvme flows
// through the staging ring (two chunks read ahead, one computed, written behind) into the next generation. Writes may still be in flight
// when step() returns; drain() waits for all of them. Used by the optimizer lane; the update itself is spread over the rank's threads.
#pragma once
#include <deque>

#include "optim/adamw.h"
#include "parallel/model_state.h"
#include "parallel/pending.h"

namespace spillway::parallel {

/// What one update needs beside the bytes.
struct Update {
  optim::AdamWSettings adamw;
  double learning_rate = 0;
  i64 t = 1;                  // number of this applied update
  double gradient_scale = 1;  // clip factor / loss scale
  optim::Isa isa = optim::Isa::best;
};

class Stepper {
 public:
  Stepper(const Plan& plan, ModelState& state) : plan_(plan), state_(state) {}

  void step(const Bucket& bucket, const Update& update);
  void drain();

 private:
  struct Operand {
    std::span<std::byte> bytes;
    offload::Blob* staged = nullptr;  // the blob to write back to; null: in place
  };
  struct Chunk {
    TileRange range;  // within the group
    std::optional<offload::StagingRing::Lease> lease;
    Operand weights, gradients, state;
    Pending reads;  // after the lease: settled before it goes back
  };
  Chunk open(const Bucket& bucket, TileRange range);
  Operand operand(Chunk& chunk, offload::Blob& blob, i64& used_bytes, bool written);
  template <class T>
  void update(const Group& group, const Chunk& chunk, const Update& update);
  void close(Chunk chunk);

  const Plan& plan_;
  ModelState& state_;
  struct Written {
    offload::StagingRing::Lease lease;
    Pending writes;  // after the lease: settled before it goes back
  };
  std::deque<Written> writing_;
};

}  // namespace spillway::parallel
