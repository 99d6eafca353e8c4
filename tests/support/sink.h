// Defines a GradientSink that keeps the gradients it receives. Its buffers start with large numbers, which the gradients must overwrite.
#pragma once
#include <map>

#include "autograd/tape.h"
#include "kernels/dispatch.h"

namespace spillway::test {

struct Sink final : autograd::GradientSink {
  std::map<std::pair<u32, u8>, Tensor> gradients;
  std::map<std::pair<u32, u8>, int> finished;

  Tensor target(u32 parameter, u8 use, const Shape& shape, DType dtype) override {
    const Tensor t = empty(shape, dtype);
    kernels::for_dtype("sink", dtype, [&]<class T>(T) {
      for (T& x : t.span<T>()) x = narrow<T>(1e30F);
    });
    return gradients[{parameter, use}] = t;
  }
  void done(u32 parameter, u8 use) override { ++finished[{parameter, use}]; }
};

}  // namespace spillway::test
