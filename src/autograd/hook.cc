#include "autograd/hook.h"

#include "base/error.h"

namespace spillway::autograd {
namespace {

std::string described(const Tensor& t) {
  return t.defined() ? std::string(to_string(t.dtype())) + " " + to_string(t.shape()) + (t.is_contiguous() ? "" : ", not contiguous")
                     : "none";
}

}  // namespace

Variable with_hook(const Variable& x, GradientHook hook) {
  Recorder r({x});
  return r.output(x.value, [hook = std::move(hook)](Backward& b) {
    const Tensor gradient = hook(b.gradient());
    if (!gradient.defined() || !(gradient.shape() == b.gradient().shape()) || gradient.dtype() != b.gradient().dtype() ||
        !gradient.is_contiguous()) {
      throw Error(ErrorCode::bug,
                  "[with_hook] expected a gradient of " + described(b.gradient()) + " from the hook, got " + described(gradient));
    }
    b.pass(0, gradient);
  });
}

}  // namespace spillway::autograd
