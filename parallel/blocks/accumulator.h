// The GradientSink of an offloaded block: gives each parameter its place in its group's flat gradient accumulator, wherever that lies now.
// The first micro-batch writes the gradients and later ones are added in order. Gaps are set to zero once, so that norms and updates may
// run over whole tiles. On the meta device it returns tensors without memory, in the same allocation pattern.
#pragma once
#include <map>

#include "autograd/tape.h"
#include "parallel/layout/layout.h"

namespace spillway::parallel {

class Accumulator final : public autograd::GradientSink {
 public:
  Accumulator(const Layout& layout, DType dtype) : layout_(layout), dtype_(dtype) {}

  /// Sets where the accumulator of (group, use) lies for the next Backward. `first`: gradients are written there, not added.
  void place(GroupUse use, std::byte* base, bool first);
  /// Throws Error(bug) if a parameter of the placed groups got no gradient. Forgets all places.
  void finish();

  Tensor target(u32 parameter, u8 use, const Shape& shape, DType dtype) override;
  void done(u32 parameter, u8 use) override;

 private:
  struct Place {
    std::byte* base = nullptr;
    bool first = true;
    size_t pending = 0;  // number of parameters that have no gradient yet
  };
  Tensor home(u32 parameter, const Place& place, const Shape& shape) const;

  const Layout& layout_;
  const DType dtype_;
  std::map<std::pair<u16, u8>, Place> places_;
  std::map<std::pair<u32, u8>, Tensor> addends_;
};

}  // namespace spillway::parallel
