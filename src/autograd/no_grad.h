// Defines NoGrad, which turns off recording, like PyTorch's no_grad. (Without a tape nothing is recorded either: see Context::tape.)
#pragma once

namespace spillway::autograd {

/// While a NoGrad object lives, nothing is recorded on the thread that created it: the output of every op is a constant. Other threads are
/// not affected.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;
};

}  // namespace spillway::autograd
