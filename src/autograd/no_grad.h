// Looking without recording, as PyTorch's no_grad. (Without a tape nothing is recorded either: Context::tape null.)
#pragma once

namespace spillway::autograd {

/// While one lives nothing is recorded on the thread that made it: every op's output is a constant. Not across threads.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;
};

}  // namespace spillway::autograd
