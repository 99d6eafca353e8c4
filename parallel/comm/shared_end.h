// One rank's end of a group that several of its threads call: one at a time, and what each of them calls is in order.
#pragma once
#include <mutex>

#include "parallel/comm/communicator.h"

namespace spillway::parallel {

class SharedEnd {
 public:
  /// Null: there is one rank, and nobody calls. The communicator outlives it.
  explicit SharedEnd(Communicator* ranks) : ranks_(ranks) {}

  Event send(std::span<const std::byte> bytes, int to, int tag) {
    const std::lock_guard lock(calling_);
    return ranks_->send(bytes, to, tag);
  }
  Event receive(std::span<std::byte> bytes, int from, int tag) {
    const std::lock_guard lock(calling_);
    return ranks_->receive(bytes, from, tag);
  }
  Event broadcast(std::span<std::byte> bytes, int root) {
    const std::lock_guard lock(calling_);
    return ranks_->broadcast(bytes, root);
  }
  Event all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Parts bytes) {
    const std::lock_guard lock(calling_);
    return ranks_->all_gather(mine, all, std::move(bytes));
  }

 private:
  Communicator* const ranks_;
  std::mutex calling_;
};

}  // namespace spillway::parallel
