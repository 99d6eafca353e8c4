// Where what lies on a GPU meets the other ranks: through the two buffers of its lane, in pieces that are the same on all ranks.
#include <algorithm>

#include "parallel/rank.h"

namespace spillway::parallel {
namespace {

// The pieces in which a group crosses its data-parallel ranks: of each rank's part the next few tiles, side by side.
class DealtPieces {
 public:
  DealtPieces(const Sharding& sharding, const Group& group, i64 buffer_tiles)
      : sharding_(sharding), tiles_(whole(group).count()), step_(buffer_tiles / sharding.ranks) {}

  // The first rank's part is the longest.
  i64 count() const { return ceil_div(sharding_.part(tiles_, 0).count(), step_); }
  TileRange of_rank(int rank, i64 piece) const {
    const TileRange part = sharding_.part(tiles_, rank);
    const i64 begin = std::min(part.end, part.begin + piece * step_);
    return {begin, std::min(part.end, begin + step_)};
  }
  // Where each rank's tiles begin in the buffer, and the end; `each` bytes or elements a tile.
  Parts parts(i64 piece, i64 each) const {
    Parts begins{0};
    for (int r = 0; r < sharding_.ranks; ++r) begins.push_back(begins.back() + each * of_rank(r, piece).count());
    return begins;
  }

 private:
  const Sharding& sharding_;
  const i64 tiles_, step_;
};

// The nth of the pieces of so many bytes.
template <class Byte>
std::span<Byte> nth(std::span<Byte> all, i64 n, i64 each_bytes) {
  const i64 begin = n * each_bytes;
  return all.subspan(static_cast<size_t>(begin), static_cast<size_t>(std::min(std::ssize(all) - begin, each_bytes)));
}

std::span<std::byte> first(std::byte* buffer, i64 bytes) { return {buffer, static_cast<size_t>(bytes)}; }

}  // namespace

// `mine` begins at this rank's part, and may lie on the host.
void Rank::gather_to_gpu(const Group& group, i64 tile_bytes, std::span<const std::byte> mine, std::byte* all) {
  HostPass& pass = *passes_[static_cast<size_t>(Lane::data)];
  const GpuQueue& queue = lanes_->queue(Lane::data);
  const DealtPieces pieces(sharding(), group, pass.buffer_bytes() / tile_bytes);
  const auto me = static_cast<size_t>(sharding().rank);
  const i64 part_begin = sharding().own(group).begin;
  const auto fill = [&](i64 p, std::byte* buffer) {
    const TileRange own = pieces.of_rank(sharding().rank, p);
    queue.copy(buffer + pieces.parts(p, tile_bytes)[me], mine.data() + (own.begin - part_begin) * tile_bytes, own.count() * tile_bytes);
  };
  const auto cross = [&](i64 p, std::byte* buffer) {
    const Parts parts = pieces.parts(p, tile_bytes);
    const auto own = first(buffer + parts[me], parts[me + 1] - parts[me]);
    return data_ranks_->all_gather(own, first(buffer, parts.back()), parts);
  };
  const auto empty = [&](i64 p, std::byte* buffer) {
    const Parts parts = pieces.parts(p, tile_bytes);
    for (int r = 0; r < sharding().ranks; ++r) {
      const TileRange tiles = pieces.of_rank(r, p);
      queue.copy(all + tiles.begin * tile_bytes, buffer + parts[static_cast<size_t>(r)], tiles.count() * tile_bytes);
    }
  };
  pass.run(queue, pieces.count(), {fill, cross, empty});
}

void Rank::sum_on_gpu(std::span<std::byte> all, DType dtype) {
  HostPass& pass = *passes_[static_cast<size_t>(Lane::data)];
  const GpuQueue& queue = lanes_->queue(Lane::data);
  const auto part = [&](i64 p) { return nth(all, p, pass.buffer_bytes()); };
  const auto fill = [&](i64 p, std::byte* buffer) { queue.copy(buffer, part(p).data(), std::ssize(part(p))); };
  const auto cross = [&](i64 p, std::byte* buffer) {
    return data_ranks_->all_reduce(first(buffer, std::ssize(part(p))), dtype, Reduction::sum);
  };
  const auto empty = [&](i64 p, std::byte* buffer) { queue.copy(part(p).data(), buffer, std::ssize(part(p))); };
  pass.run(queue, ceil_div(std::ssize(all), pass.buffer_bytes()), {fill, cross, empty});
}

void Rank::sum_part_on_gpu(const Group& group, std::byte* all, DType dtype) {
  HostPass& pass = *passes_[static_cast<size_t>(Lane::data)];
  const GpuQueue& queue = lanes_->queue(Lane::data);
  const i64 tile_bytes = kTileElems * size_of(dtype);
  const DealtPieces pieces(sharding(), group, pass.buffer_bytes() / tile_bytes);
  const auto me = static_cast<size_t>(sharding().rank);
  const auto fill = [&](i64 p, std::byte* buffer) {
    const Parts parts = pieces.parts(p, tile_bytes);
    for (int r = 0; r < sharding().ranks; ++r) {
      const TileRange tiles = pieces.of_rank(r, p);
      queue.copy(buffer + parts[static_cast<size_t>(r)], all + tiles.begin * tile_bytes, tiles.count() * tile_bytes);
    }
  };
  const auto cross = [&](i64 p, std::byte* buffer) {
    const Parts parts = pieces.parts(p, tile_bytes);
    const auto own = first(buffer + parts[me], parts[me + 1] - parts[me]);
    return data_ranks_->reduce_scatter(first(buffer, parts.back()), own, dtype, pieces.parts(p, kTileElems));
  };
  const auto empty = [&](i64 p, std::byte* buffer) {
    const TileRange own = pieces.of_rank(sharding().rank, p);
    queue.copy(all + own.begin * tile_bytes, buffer + pieces.parts(p, tile_bytes)[me], own.count() * tile_bytes);
  };
  pass.run(queue, pieces.count(), {fill, cross, empty});
}

void Rank::send_from_gpu(std::span<const std::byte> bytes, const Instruction& i) {
  HostPass& pass = *passes_[static_cast<size_t>(i.lane)];
  const GpuQueue& queue = lanes_->queue(i.lane);
  const auto part = [&](i64 p) { return nth(bytes, p, pass.buffer_bytes()); };
  const auto fill = [&](i64 p, std::byte* buffer) { queue.copy(buffer, part(p).data(), std::ssize(part(p))); };
  const auto cross = [&](i64 p, std::byte* buffer) { return send_message(first(buffer, std::ssize(part(p))), i); };
  pass.run(queue, ceil_div(std::ssize(bytes), pass.buffer_bytes()), {fill, cross, {}});
}

void Rank::receive_to_gpu(std::span<std::byte> bytes, const Instruction& i) {
  HostPass& pass = *passes_[static_cast<size_t>(i.lane)];
  const GpuQueue& queue = lanes_->queue(i.lane);
  const auto part = [&](i64 p) { return nth(bytes, p, pass.buffer_bytes()); };
  const auto cross = [&](i64 p, std::byte* buffer) { return receive_message(first(buffer, std::ssize(part(p))), i); };
  const auto empty = [&](i64 p, std::byte* buffer) { queue.copy(part(p).data(), buffer, std::ssize(part(p))); };
  pass.run(queue, ceil_div(std::ssize(bytes), pass.buffer_bytes()), {{}, cross, empty});
}

}  // namespace spillway::parallel
