#include "parallel/exchange/cpu_exchange.h"

namespace spillway::parallel {
namespace {

std::span<std::byte> whole_of(std::byte* all, const Dealt& dealt) {
  return {all, static_cast<size_t>(dealt.tiles.back() * dealt.tile_bytes)};
}

}  // namespace

void CpuExchange::gather(const GpuQueue*, std::span<const std::byte> mine, std::byte* all, const Dealt& dealt) {
  data_ranks_->all_gather(mine, whole_of(all, dealt), dealt.parts(dealt.tile_bytes)).wait();
}

void CpuExchange::sum_part(const GpuQueue*, std::byte* all, DType dtype, const Dealt& dealt) {
  const TileRange own = dealt.of(data_ranks_->rank());
  const auto mine =
      whole_of(all, dealt).subspan(static_cast<size_t>(own.begin * dealt.tile_bytes), static_cast<size_t>(own.count() * dealt.tile_bytes));
  data_ranks_->reduce_scatter(whole_of(all, dealt), mine, dtype, dealt.parts(dealt.tile_bytes / size_of(dtype))).wait();
}

void CpuExchange::sum(const GpuQueue*, std::span<std::byte> all, DType dtype) {
  data_ranks_->all_reduce(all, dtype, Reduction::sum).wait();
}

void CpuExchange::send(const GpuQueue*, std::span<const std::byte> bytes, int to, int tag) { pipeline_ranks_.send(bytes, to, tag).wait(); }

void CpuExchange::receive(const GpuQueue*, std::span<std::byte> bytes, int from, int tag) {
  pipeline_ranks_.receive(bytes, from, tag).wait();
}

}  // namespace spillway::parallel
