// Hooks that observe or change a gradient as it flows back through a variable. For the whole gradient of a parameter see
// nn::EagerParameters.
#pragma once
#include "autograd/tape.h"

namespace spillway::autograd {

/// A function that receives the contiguous gradient and returns the gradient to pass on: the received
/// tensor or another of its shape and dtype. It must not write into the tensor that it receives.
using GradientHook = std::function<Tensor(const Tensor& gradient)>;

/// Returns x as a new variable. In backward, the gradients of all ops that read the new variable are added, and the sum passes through
/// `hook` once before it goes on to x. Throws Error(bug) in backward when the hook returns another shape or dtype.
Variable with_hook(const Variable& x, GradientHook hook);

}  // namespace spillway::autograd
