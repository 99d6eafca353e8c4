// Provides an op that produces a NaN in the forward or backward pass, and inserts it behind a block.
#pragma once
#include <limits>

#include "autograd/tape.h"
#include "device/transfer.h"
#include "nn/hook.h"

namespace spillway::test {

/// Returns x, with its first element replaced by NaN in one direction: in the forward, or in the gradient. Works on the CPU and on a GPU.
inline autograd::Variable planted(const autograd::Variable& x, bool backward) {
  const auto spoil = [](const Tensor& from) {
    const Tensor to = from.device().is_meta() ? empty(from.shape(), from.dtype()) : to_current_device(from);
    static constexpr auto kNaN = std::numeric_limits<float>::quiet_NaN();
    if (!to.device().is_meta()) transfer(to.raw(), reinterpret_cast<const std::byte*>(&kNaN), sizeof kNaN);
    return to;
  };
  autograd::Recorder r({x});
  return r.output(backward ? x.value : spoil(x.value),
                  [=](autograd::Backward& b) { b.pass(0, backward ? spoil(b.gradient()) : b.gradient()); });
}

/// Returns the block with the planted op behind its output, unless that output is the loss.
inline std::unique_ptr<nn::Module> planted_behind(std::unique_ptr<nn::Module> block, bool backward) {
  return nn::with_hook(std::move(block), [backward](const autograd::Variable&, const autograd::Variable& y, const nn::Context&) {
    return y.dtype() == DType::f64 ? y : planted(y, backward);  // the last block's output is the loss (f64), which stays as it is
  });
}

}  // namespace spillway::test
