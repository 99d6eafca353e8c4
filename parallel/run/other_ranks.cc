#include "parallel/run/other_ranks.h"

#include "base/error.h"
#include "parallel/exchange/cpu_exchange.h"
#include "parallel/exchange/host_exchange.h"

namespace spillway::parallel {

OtherRanks::OtherRanks(const Plan& plan, const Resources& resources)
    : plan_(plan), data_(resources.data_ranks), pipeline_(resources.pipeline_ranks), all_{resources.data_ranks, resources.pipeline_ranks} {
  const auto is_end = [](const Communicator* end, int ranks, int rank) { return end && end->size() == ranks && end->rank() == rank; };
  const Pipeline& pipeline = plan.scheduling.pipeline;
  require(!has_pipeline() || is_end(resources.pipeline_ranks, pipeline.ranks, pipeline.rank),
          "[rank] expected the communicator of the plan's pipeline ranks, got none or one of other ranks");
  const Sharding& sharding = plan.scheduling.sharding;
  require(!has_data() || is_end(resources.data_ranks, sharding.ranks, sharding.rank),
          "[rank] expected the communicator of the plan's data-parallel ranks, got none or one of other ranks");
  require(!plan.gpu_to_gpu || resources.gpu_exchange, "[rank] expected an NCCL exchange, because the plan has GPUs exchange data directly");
  if (!plan.gpu_to_gpu) own_exchange_ = make_exchange(*resources.host);
  exchange_ = plan.gpu_to_gpu ? resources.gpu_exchange : own_exchange_.get();
}

std::unique_ptr<RankExchange> OtherRanks::make_exchange(MemoryPool& host) {
  if (!plan_.on_gpu()) return std::make_unique<CpuExchange>(data_, pipeline_);
  return std::make_unique<HostExchange>(plan_, host, data_, pipeline_);
}

void OtherRanks::tell_pipeline(std::span<std::byte> bytes) {
  if (has_pipeline()) pipeline_.broadcast(bytes, plan_.layout.rank_of.back()).wait();
}

void OtherRanks::give_up(const std::exception_ptr& error) const {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    for (Communicator* ranks : all_) {
      if (ranks) ranks->abort(e.what());
    }
  }
}

}  // namespace spillway::parallel
