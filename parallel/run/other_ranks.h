// Gives a rank's lanes access to the other ranks: the communicators of its data-parallel group and of its pipeline, and the exchange
// through which data in device memory reaches them.
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
  /// Allocates the host memory that the plan lists for this. Throws Error(bug) if the communicators do not match the plan's ranks.
  OtherRanks(const Plan& plan, const Resources& resources);

  /// Requires has_data(). Used by one lane at a time.
  Communicator& data() const { return *data_; }
  /// Requires has_pipeline(). Thread-safe.
  SharedEnd& pipeline() { return pipeline_; }
  RankExchange& exchange() const { return *exchange_; }

  bool has_data() const { return plan_.scheduling.sharding.ranks > 1; }
  bool has_pipeline() const { return plan_.scheduling.pipeline.ranks > 1; }
  /// Broadcasts bytes from the last block's rank to the other ranks of its pipeline. Returns when done.
  void tell_pipeline(std::span<std::byte> bytes);
  /// Tells all other ranks that this rank failed with `error`, so that they do not wait for it.
  void give_up(const std::exception_ptr& error) const;

 private:
  std::unique_ptr<RankExchange> make_exchange(MemoryPool& host);

  const Plan& plan_;
  Communicator* const data_;
  SharedEnd pipeline_;
  const std::array<Communicator*, 2> all_;      // null for a group that has only this rank
  std::unique_ptr<RankExchange> own_exchange_;  // null if the exchange is GPU to GPU
  RankExchange* exchange_ = nullptr;
};

}  // namespace spillway::parallel
