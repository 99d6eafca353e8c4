#include "parallel/device/nvme_pass.h"

#include <algorithm>
#include <deque>

#include "base/error.h"
#include "device/stream.h"
#include "parallel/comm/pending.h"
#include "parallel/state/stopwatch.h"

namespace spillway::parallel {
namespace {

// The number of pieces that are written at the same time. More would delay the reads and writes of the optimizer.
constexpr size_t kPiecesWritten = 2;

std::span<std::byte> tile_of(std::span<std::byte> bytes, i64 tile, i64 tile_bytes) {
  return bytes.subspan(static_cast<size_t>(tile * tile_bytes), static_cast<size_t>(tile_bytes));
}

// Calls `body`. If it throws, waits until the queue is empty before the error is rethrown.
template <class Body>
void draining(const GpuQueue& queue, Body&& body) {
  try {
    body();
  } catch (...) {
    try {
      queue.wait();
    } catch (...) {  // an error of the wait is ignored, since it too means that the work on the queue has ended
    }
    throw;
  }
}

}  // namespace

NvmePass::NvmePass(const Plan& plan, ModelState& state, MemoryPool& host)
    : plan_(plan),
      state_(state),
      memory_(host.allocate(plan.bounces * plan.bounce_bytes, "between nvme and the GPU")),
      buffers_(static_cast<size_t>(plan.bounces)),
      half_(buffers_ / 2) {
  require(plan.bounces >= 2 && plan.bounces % 2 == 0, "[nvme pass] expected an even number of buffers, at least 2");
}

std::vector<NvmePass::Piece> NvmePass::pieces(const offload::Blob& blob, TileRange tiles, size_t first) const {
  const i64 step = plan_.bounce_bytes / blob.tile_bytes();
  std::vector<Piece> all;
  for (i64 t = tiles.begin; t < tiles.end; t += step) {
    const TileRange some{t, std::min(tiles.end, t + step)};
    std::byte* at = memory_.data() + static_cast<i64>((first + all.size()) % buffers_) * plan_.bounce_bytes;
    all.push_back({some, (t - tiles.begin) * blob.tile_bytes(), {at, static_cast<size_t>(some.count() * blob.tile_bytes())}});
  }
  return all;
}

double NvmePass::fetch(offload::Blob& from, TileRange tiles, std::byte* into, const GpuQueue& queue) {
  double waited_us = 0;
  draining(queue, [&] { fetch_pieces(from, pieces(from, tiles, next_), into, queue, waited_us); });
  return waited_us;
}

// The buffers form two halves. New reads into one half begin once the first piece of the other half has been copied to the GPU. By then the
// last copy out of this half has probably ended, and the drives still have the rest of the other half to read.
void NvmePass::fetch_pieces(offload::Blob& from, const std::vector<Piece>& all, std::byte* into, const GpuQueue& queue, double& waited_us) {
  const size_t first = next_, end = first + all.size();
  std::deque<Pending> reads;
  size_t asked = first;
  const auto may_ask = [&] { return asked % half_ != 0 || asked <= first + half_ || next_ > asked - half_; };
  for (; next_ < end; ++next_) {
    for (; asked < end && asked < next_ + buffers_ && may_ask(); ++asked) {
      if (asked % half_ == 0) emptied_[asked / half_ % 2].wait();
      const Piece& piece = all[asked - first];
      reads.emplace_back().add(from.read(piece.tiles, state_.generation(), piece.buffer, {.priority = offload::Priority::urgent}));
    }
    const Piece& piece = all[next_ - first];
    waited_us += microseconds_of([&] { reads.front().wait(); });
    reads.pop_front();
    Stream::current().run(piece.tiles.count(), [&](i64 i, int) {
      const TileRange tile{piece.tiles.begin + i, piece.tiles.begin + i + 1};
      state_.verify(from, tile, state_.generation(), tile_of(piece.buffer, i, from.tile_bytes()));
    });
    queue.copy(into + piece.begin, piece.buffer.data(), std::ssize(piece.buffer));
    if ((next_ + 1) % half_ == 0 || next_ + 1 == end) emptied_[next_ / half_ % 2] = queue.moment();
  }
}

double NvmePass::evict(const std::byte* from, offload::Blob& into, TileRange tiles, const GpuQueue& queue) {
  double waited_us = 0;
  draining(queue, [&] { evict_pieces(from, into, pieces(into, tiles, 0), queue, waited_us); });
  return waited_us;
}

// The buffers form two halves. One half is filled again once two pieces of the other half are being written. By then all pieces of this
// half have been written.
void NvmePass::evict_pieces(const std::byte* from, offload::Blob& into, const std::vector<Piece>& all, const GpuQueue& queue,
                            double& waited_us) {
  std::deque<Pending> writes;
  size_t next_filled = 0;
  const auto settle = [&](size_t most) {
    for (; writes.size() > most; writes.pop_front()) waited_us += microseconds_of([&] { writes.front().wait(); });
  };
  const auto fill_half = [&] {
    const size_t end = std::min(all.size(), next_filled + half_);
    for (; next_filled < end; ++next_filled) {
      const Piece& piece = all[next_filled];
      queue.copy(piece.buffer.data(), from + piece.begin, std::ssize(piece.buffer));
    }
    return queue.moment();
  };
  Event next = fill_half();
  for (size_t p = 0; p < all.size(); ++p) {
    if (p % half_ == 0) next.wait();
    const Piece& piece = all[p];
    Stream::current().run(piece.tiles.count(), [&](i64 i, int) {
      const TileRange tile{piece.tiles.begin + i, piece.tiles.begin + i + 1};
      into.stamp(tile, state_.generation(), tile_of(piece.buffer, i, into.tile_bytes()));
    });
    settle(kPiecesWritten - 1);
    waited_us += microseconds_of([&] { writes.emplace_back().add(into.write(piece.tiles, state_.generation(), piece.buffer)); });
    if (p % half_ == std::min(half_, kPiecesWritten) - 1 && next_filled < all.size()) {
      settle(std::min(half_, kPiecesWritten));
      next = fill_half();
    }
  }
  settle(0);
}

}  // namespace spillway::parallel
