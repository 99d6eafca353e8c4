// Looking at, or changing, a gradient on its way back through a variable. Of a parameter's gradient as a whole: nn::EagerParameters.
#pragma once
#include "autograd/tape.h"

namespace spillway::autograd {

/// Gets the gradient, contiguous, and returns what flows on: it, or another of its shape and dtype. It must not write into what it gets.
using GradientHook = std::function<Tensor(const Tensor& gradient)>;

/// x itself, whose gradient passes through `hook` when backward comes here, once for each use of what is returned added up. Throws
/// Error(bug) in backward when the hook returns another shape or dtype.
Variable with_hook(const Variable& x, GradientHook hook);

}  // namespace spillway::autograd
