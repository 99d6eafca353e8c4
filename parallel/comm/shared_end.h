// Lets several threads of one rank use the rank's endpoint in a group. Only one call is made at a time, and the calls of each thread keep
// their order.
#pragma once
#include <mutex>

#include "parallel/comm/communicator.h"

namespace spillway::parallel {

class SharedEnd {
 public:
  /// Wraps the endpoint `ranks`, which must outlive this object. It may be null if there is only one rank; the functions of this class
  /// must then not be called.
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
