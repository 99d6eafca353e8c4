// Gives the threads of a rank access to other ranks: the communicator of its data-parallel ranks,
// the communicator of its pipeline ranks, and the exchange for data in device memory.
#pragma once
#include <array>
#include <exception>
#include <memory>

#include "parallel/comm/shared_end.h"
#include "parallel/exchange/rank_exchange.h"
#include "parallel/state/model_state.h"

namespace spillway::parallel {

class OtherRanks {
 public:
  /// Allocates the host memory that the plan lists for exchanges. Throws Error(bug) if the communicators do not match the plan's ranks.
  OtherRanks(const Plan& plan, const Resources& resources);

  /// Returns the communicator of the data-parallel ranks, of which there must be several (has_data()). Used by one thread at a time.
  Communicator& data() const { return *data_; }
  /// Returns the endpoint among the pipeline ranks, of which there must be several (has_pipeline()). Thread-safe.
  SharedEnd& pipeline() { return pipeline_; }
  RankExchange& exchange() const { return *exchange_; }

  bool has_data() const { return plan_.scheduling.sharding.ranks > 1; }
  bool has_pipeline() const { return plan_.scheduling.pipeline.ranks > 1; }
  /// Broadcasts bytes from the rank that holds the last block to the other ranks of its pipeline. Returns when the bytes have arrived.
  void tell_pipeline(std::span<std::byte> bytes);
  /// Tells all other ranks that this rank has failed with `error`, so that they do not wait for it.
  void give_up(const std::exception_ptr& error) const;

 private:
  std::unique_ptr<RankExchange> make_exchange(MemoryPool& host);

  const Plan& plan_;
  Communicator* const data_;
  SharedEnd pipeline_;
  // the communicators of the data-parallel and of the pipeline ranks; null for a group that has only this rank
  const std::array<Communicator*, 2> all_;
  std::unique_ptr<RankExchange> own_exchange_;  // the exchange of data in device memory; null if GPUs exchange data directly
  RankExchange* exchange_ = nullptr;
};

}  // namespace spillway::parallel
