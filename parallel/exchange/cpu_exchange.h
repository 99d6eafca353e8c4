// A CpuExchange exchanges data in host memory between ranks. Communicators read and write the data in place. A call returns when it is
// done.
#pragma once
#include "parallel/comm/shared_end.h"
#include "parallel/exchange/rank_exchange.h"

namespace spillway::parallel {

class CpuExchange final : public RankExchange {
 public:
  /// `data_ranks` is null if there is only one data-parallel rank. Both arguments must outlive this object.
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
