// A CpuExchange exchanges data in host memory between ranks, without copies: communicators read and write the data where it lies. A call
// returns when the exchange is done.
#pragma once
#include "parallel/comm/shared_end.h"
#include "parallel/exchange/rank_exchange.h"

namespace spillway::parallel {

class CpuExchange final : public RankExchange {
 public:
  /// Makes the exchange. `data_ranks` connects the data-parallel ranks; null if there is only one. Both arguments must outlive this
  /// object.
  CpuExchange(Communicator* data_ranks, SharedEnd& pipeline_ranks) : data_ranks_(data_ranks), pipeline_ranks_(pipeline_ranks) {}

  void gather(const GpuQueue*, std::span<const std::byte> mine, std::byte* all, const Dealt& dealt) override;
  void sum_part(const GpuQueue*, std::byte* all, DType dtype, const Dealt& dealt) override;
  void sum(const GpuQueue*, std::span<std::byte> all, DType dtype) override;
  void send(const GpuQueue*, std::span<const std::byte> bytes, int to, int tag) override;
  void receive(const GpuQueue*, std::span<std::byte> bytes, int from, int tag) override;

 private:
  Communicator* const data_ranks_;
  SharedEnd& pipeline_ranks_;
};

}  // namespace spillway::parallel
