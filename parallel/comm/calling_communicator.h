// CallingCommunicator is a base class for implementations of Communicator. It turns each collective into a Call
// (collective.h), so that an implementation has to provide call() only, not every collective.
#pragma once
#include <utility>

#include "parallel/comm/collective.h"

namespace spillway::parallel {

class CallingCommunicator : public Communicator {
 public:
  Event all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Parts bytes) final {
    return call({.what = Collective::all_gather, .gives = mine, .gets = all, .parts = std::move(bytes)});
  }
  Event reduce_scatter(std::span<const std::byte> all, std::span<std::byte> mine, DType dtype, Parts elems) final {
    return call({.what = Collective::reduce_scatter, .gives = all, .gets = mine, .parts = std::move(elems), .dtype = dtype});
  }
  Event all_reduce(std::span<std::byte> values, DType dtype, Reduction reduction) final {
    return call({.what = Collective::all_reduce, .gives = values, .gets = values, .dtype = dtype, .reduction = reduction});
  }
  Event broadcast(std::span<std::byte> bytes, int root) final {
    return call({.what = Collective::broadcast, .gives = bytes, .gets = bytes, .root = root});
  }
  Event barrier() final { return call({.what = Collective::barrier}); }

 private:
  virtual Event call(Call call) = 0;
};

}  // namespace spillway::parallel
