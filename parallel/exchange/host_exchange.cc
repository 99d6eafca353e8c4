#include "parallel/exchange/host_exchange.h"

#include <algorithm>

namespace spillway::parallel {
namespace {

// Cuts `all` into pieces of `each_bytes` bytes and returns the n-th one. The last piece may be shorter.
template <class Byte>
std::span<Byte> nth(std::span<Byte> all, i64 n, i64 each_bytes) {
  const i64 begin = n * each_bytes;
  return all.subspan(static_cast<size_t>(begin), static_cast<size_t>(std::min(std::ssize(all) - begin, each_bytes)));
}

std::span<std::byte> first(std::byte* buffer, i64 bytes) { return {buffer, static_cast<size_t>(bytes)}; }

}  // namespace

HostExchange::HostExchange(const Plan& plan, MemoryPool& host, Communicator* data_ranks, SharedEnd& pipeline_ranks)
    : data_ranks_(data_ranks), pipeline_ranks_(pipeline_ranks) {
  for (const Lane lane : plan.passing_lanes()) passes_[static_cast<size_t>(lane)] = std::make_unique<HostPass>(host, plan.pass_bytes);
}

void HostExchange::gather(const GpuQueue* queue, std::span<const std::byte> mine, std::byte* all, const Dealt& dealt) {
  const i64 tile_bytes = dealt.tile_bytes;
  const int rank = data_ranks_->rank();
  const auto me = static_cast<size_t>(rank);
  const DealtPieces pieces(dealt, pass(Lane::data).buffer_bytes());
  const auto fill = [&](i64 p, std::byte* buffer) {
    const TileRange own = pieces.of_rank(rank, p);
    queue->copy(buffer + pieces.parts(p, tile_bytes)[me], mine.data() + (own.begin - dealt.tiles[me]) * tile_bytes,
                own.count() * tile_bytes);
  };
  const auto cross = [&](i64 p, std::byte* buffer) {
    const Parts parts = pieces.parts(p, tile_bytes);
    const auto own = first(buffer + parts[me], parts[me + 1] - parts[me]);
    return data_ranks_->all_gather(own, first(buffer, parts.back()), parts);
  };
  const auto empty = [&](i64 p, std::byte* buffer) {
    const Parts parts = pieces.parts(p, tile_bytes);
    for (int r = 0; r < dealt.ranks(); ++r) {
      const TileRange tiles = pieces.of_rank(r, p);
      queue->copy(all + tiles.begin * tile_bytes, buffer + parts[static_cast<size_t>(r)], tiles.count() * tile_bytes);
    }
  };
  pass(Lane::data).run(*queue, pieces.count(), {fill, cross, empty});
}

void HostExchange::sum_part(const GpuQueue* queue, std::byte* all, DType dtype, const Dealt& dealt) {
  const i64 tile_bytes = dealt.tile_bytes;
  const int rank = data_ranks_->rank();
  const auto me = static_cast<size_t>(rank);
  const DealtPieces pieces(dealt, pass(Lane::data).buffer_bytes());
  const auto fill = [&](i64 p, std::byte* buffer) {
    const Parts parts = pieces.parts(p, tile_bytes);
    for (int r = 0; r < dealt.ranks(); ++r) {
      const TileRange tiles = pieces.of_rank(r, p);
      queue->copy(buffer + parts[static_cast<size_t>(r)], all + tiles.begin * tile_bytes, tiles.count() * tile_bytes);
    }
  };
  const auto cross = [&](i64 p, std::byte* buffer) {
    const Parts parts = pieces.parts(p, tile_bytes);
    const auto own = first(buffer + parts[me], parts[me + 1] - parts[me]);
    return data_ranks_->reduce_scatter(first(buffer, parts.back()), own, dtype, pieces.parts(p, tile_bytes / size_of(dtype)));
  };
  const auto empty = [&](i64 p, std::byte* buffer) {
    const TileRange own = pieces.of_rank(rank, p);
    queue->copy(all + own.begin * tile_bytes, buffer + pieces.parts(p, tile_bytes)[me], own.count() * tile_bytes);
  };
  pass(Lane::data).run(*queue, pieces.count(), {fill, cross, empty});
}

void HostExchange::sum(const GpuQueue* queue, std::span<std::byte> all, DType dtype) {
  const i64 buffer_bytes = pass(Lane::data).buffer_bytes();
  const auto part = [&](i64 p) { return nth(all, p, buffer_bytes); };
  const auto fill = [&](i64 p, std::byte* buffer) { queue->copy(buffer, part(p).data(), std::ssize(part(p))); };
  const auto cross = [&](i64 p, std::byte* buffer) {
    return data_ranks_->all_reduce(first(buffer, std::ssize(part(p))), dtype, Reduction::sum);
  };
  const auto empty = [&](i64 p, std::byte* buffer) { queue->copy(part(p).data(), buffer, std::ssize(part(p))); };
  pass(Lane::data).run(*queue, ceil_div(std::ssize(all), buffer_bytes), {fill, cross, empty});
}

void HostExchange::send(const GpuQueue* queue, std::span<const std::byte> bytes, int to, int tag) {
  const i64 buffer_bytes = pass(Lane::send).buffer_bytes();
  const auto part = [&](i64 p) { return nth(bytes, p, buffer_bytes); };
  const auto fill = [&](i64 p, std::byte* buffer) { queue->copy(buffer, part(p).data(), std::ssize(part(p))); };
  const auto cross = [&](i64 p, std::byte* buffer) { return pipeline_ranks_.send(first(buffer, std::ssize(part(p))), to, tag); };
  pass(Lane::send).run(*queue, ceil_div(std::ssize(bytes), buffer_bytes), {fill, cross, {}});
}

void HostExchange::receive(const GpuQueue* queue, std::span<std::byte> bytes, int from, int tag) {
  const i64 buffer_bytes = pass(Lane::receive).buffer_bytes();
  const auto part = [&](i64 p) { return nth(bytes, p, buffer_bytes); };
  const auto cross = [&](i64 p, std::byte* buffer) { return pipeline_ranks_.receive(first(buffer, std::ssize(part(p))), from, tag); };
  const auto empty = [&](i64 p, std::byte* buffer) { queue->copy(part(p).data(), buffer, std::ssize(part(p))); };
  pass(Lane::receive).run(*queue, ceil_div(std::ssize(bytes), buffer_bytes), {{}, cross, empty});
}

}  // namespace spillway::parallel
