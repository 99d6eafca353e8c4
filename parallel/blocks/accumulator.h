// An Accumulator is the GradientSink of an offloaded block: the object to which the block's backward passes the gradients of parameters. It
// gives each parameter's gradient its place in the flat gradient accumulator of the parameter's group, in whatever memory that accumulator
// is at present. The first micro-batch writes the gradients, and later micro-batches are added in ascending order. Gaps between parameters
// are set to zero once, so that norms and updates may run over whole tiles (pieces of 16,384 elements). On the meta device the sink returns
// tensors without memory, and it allocates in the same order as a real run.
#pragma once
#include <map>

#include "autograd/tape.h"
#include "parallel/layout/layout.h"

namespace spillway::parallel {

class Accumulator final : public autograd::GradientSink {
 public:
  Accumulator(const Layout& layout, DType dtype) : layout_(layout), dtype_(dtype) {}

  /// Sets where the gradient accumulator of a parameter group, for one of the blocks that use the group, lies during the next Backward.
  /// If `first`, gradients are written there; otherwise they are added to the gradients there.
  void place(GroupUse use, std::byte* base, bool first);
  /// Throws Error(bug) if a parameter of the groups given to place() has got no gradient. Otherwise forgets where the accumulators lie.
  void finish();

  Tensor target(u32 parameter, u8 use, const Shape& shape, DType dtype) override;
  void done(u32 parameter, u8 use) override;

 private:
  struct Place {
    std::byte* base = nullptr;
    bool first = true;
    size_t pending = 0;  // number of parameters whose gradients are still to come
  };
  Tensor home(u32 parameter, const Place& place, const Shape& shape) const;

  const Layout& layout_;
  const DType dtype_;
  std::map<std::pair<u16, u8>, Place> places_;
  std::map<std::pair<u32, u8>, Tensor> addends_;
};

}  // namespace spillway::parallel
