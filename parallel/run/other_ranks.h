// The ranks beside this one, as its lanes ask for them: those that are data-parallel to it, those of its pipeline, and what the bytes on
// its device meet them over.
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
  /// Takes what the plan says from the host's memory. Error(bug) where the communicators are not those of the plan's ranks.
  OtherRanks(const Plan& plan, const Resources& resources);

  /// Where there are any. One lane at a time.
  Communicator& data() const { return *data_; }
  /// Where there are any. Thread-safe.
  SharedEnd& pipeline() { return pipeline_; }
  RankExchange& exchange() const { return *exchange_; }

  bool has_data() const { return plan_.scheduling.sharding.ranks > 1; }
  bool has_pipeline() const { return plan_.scheduling.pipeline.ranks > 1; }
  /// From the last block's rank to the others of its pipeline; done on return.
  void tell_pipeline(std::span<std::byte> bytes);
  /// This rank cannot go on.
  void give_up(const std::exception_ptr& error) const;

 private:
  std::unique_ptr<RankExchange> make_exchange(MemoryPool& host);

  const Plan& plan_;
  Communicator* const data_;
  SharedEnd pipeline_;
  const std::array<Communicator*, 2> all_;      // null where there are none
  std::unique_ptr<RankExchange> own_exchange_;  // unless GPUs talk to each other
  RankExchange* exchange_ = nullptr;
};

}  // namespace spillway::parallel
