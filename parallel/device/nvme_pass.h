// Buffers of page-locked host memory through which tiles go between nvme and a GPU, one way: while some are checked, or stamped, others are
// read or written and others copied. Two halves take turns: nobody waits for the GPU more than once a half. Used by one lane, always on one
// queue.
#pragma once
#include <array>

#include "device/gpu_queue.h"
#include "parallel/state/model_state.h"

namespace spillway::parallel {

class NvmePass {
 public:
  /// Takes the buffers of one way from `host`. The plan and the state outlive it.
  NvmePass(const Plan& plan, ModelState& state, MemoryPool& host);

  /// Checked as ModelState::read has it; on return all has been read and the copies stand on `queue`. Returns the microseconds it waited
  /// for the drives. An error leaves nothing under way.
  double fetch(offload::Blob& from, TileRange tiles, std::byte* into, const GpuQueue& queue);
  /// Likewise, as ModelState::write; done on return.
  double evict(const std::byte* from, offload::Blob& into, TileRange tiles, const GpuQueue& queue);

 private:
  struct Piece {
    TileRange tiles;
    i64 begin = 0;  // among the bytes of all
    std::span<std::byte> buffer;
  };
  std::vector<Piece> pieces(const offload::Blob& blob, TileRange tiles, size_t first) const;
  void fetch_pieces(offload::Blob& from, const std::vector<Piece>& pieces, std::byte* into, const GpuQueue& queue, double& waited_us);
  void evict_pieces(const std::byte* from, offload::Blob& into, const std::vector<Piece>& pieces, const GpuQueue& queue, double& waited_us);

  const Plan& plan_;
  ModelState& state_;
  const Allocation memory_;
  const size_t buffers_, half_;                                 // half of them
  size_t next_ = 0;                                             // pieces fetched so far: where the next one's turn begins
  std::array<Event, 2> emptied_{Event::done(), Event::done()};  // by half: the copies out of it
};

}  // namespace spillway::parallel
