// An NvmePass holds page-locked host buffers through which tiles pass between nvme and a GPU, in one direction.
// Three things happen at the same time in different buffers: the drives read or write, the CPU verifies tiles or
// stamps them with checksums, and the GPU copies. The buffers form two halves that take turns, so the CPU waits for
// the GPU at most once per half. Used by one thread, always with the same queue.
#pragma once
#include <array>

#include "device/gpu_queue.h"
#include "parallel/state/model_state.h"

namespace spillway::parallel {

class NvmePass {
 public:
  /// Allocates the host buffers for one direction from `host`. The plan and the model state must outlive this object.
  NvmePass(const Plan& plan, ModelState& state, MemoryPool& host);

  /// Reads tiles and verifies them as ModelState::read() does. When it returns, everything has been read, and the copies to the GPU are on
  /// `queue`. Returns the microseconds for which it waited for the drives. After an error nothing is in progress.
  double fetch(offload::Blob& from, TileRange tiles, std::byte* into, const GpuQueue& queue);
  /// Writes tiles as ModelState::write() does. When it returns, everything is written.
  double evict(const std::byte* from, offload::Blob& into, TileRange tiles, const GpuQueue& queue);

 private:
  struct Piece {
    TileRange tiles;
    i64 begin = 0;  // offset of the piece in the bytes of all pieces together
    std::span<std::byte> buffer;
  };
  std::vector<Piece> pieces(const offload::Blob& blob, TileRange tiles, size_t first) const;
  void fetch_pieces(offload::Blob& from, const std::vector<Piece>& pieces, std::byte* into, const GpuQueue& queue, double& waited_us);
  void evict_pieces(const std::byte* from, offload::Blob& into, const std::vector<Piece>& pieces, const GpuQueue& queue, double& waited_us);

  const Plan& plan_;
  ModelState& state_;
  const Allocation memory_;
  const size_t buffers_, half_;  // number of buffers, and number of buffers in a half
  size_t next_ = 0;              // number of pieces fetched so far, which determines the next buffer
  // for each half of the buffers: set when the copies out of the half are done
  std::array<Event, 2> emptied_{Event::done(), Event::done()};
};

}  // namespace spillway::parallel
