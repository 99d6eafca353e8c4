// A HostExchange exchanges data in GPU memory between ranks if the data has to pass through host memory. The data is cut
// into pieces, the same on all ranks, which pass through two host buffers of the thread that makes the call.
#pragma once
#include <array>
#include <memory>

#include "parallel/comm/shared_end.h"
#include "parallel/exchange/host_pass.h"
#include "parallel/exchange/rank_exchange.h"
#include "parallel/plan/plan.h"

namespace spillway::parallel {

class HostExchange final : public RankExchange {
 public:
  /// Allocates the planned buffers from `host`. `data_ranks` connects the data-parallel ranks; null if there is only one. Both
  /// communicators must outlive this object.
  HostExchange(const Plan& plan, MemoryPool& host, Communicator* data_ranks, SharedEnd& pipeline_ranks);

  void gather(const GpuQueue* queue, std::span<const std::byte> mine, std::byte* all, const Dealt& dealt) override;
  void sum_part(const GpuQueue* queue, std::byte* all, DType dtype, const Dealt& dealt) override;
  void sum(const GpuQueue* queue, std::span<std::byte> all, DType dtype) override;
  void send(const GpuQueue* queue, std::span<const std::byte> bytes, int to, int tag) override;
  void receive(const GpuQueue* queue, std::span<std::byte> bytes, int from, int tag) override;

 private:
  HostPass& pass(Lane lane) const { return *passes_[static_cast<size_t>(lane)]; }

  std::array<std::unique_ptr<HostPass>, kLanes> passes_{};
  Communicator* const data_ranks_;
  SharedEnd& pipeline_ranks_;
};

}  // namespace spillway::parallel
