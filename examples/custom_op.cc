// Lesson: write an op and its backward function and check it against central differences; a hook prints a gradient during backward. The op
// is Huber's loss: half of d^2 near zero, |d| - 1/2 further out.
#include <cmath>
#include <iostream>

#include "autograd/gradient_check.h"
#include "autograd/hook.h"
#include "base/error.h"
#include "ops/refuse.h"
#include "tensor/create.h"
#include "tensor/print.h"

using namespace spillway;
using autograd::Backward;
using autograd::Recorder;
using autograd::Variable;

namespace {

// Forward computes the result; the Recorder then records what backward needs. Tensors that backward reads are passed to save(), so that a
// trainer can offload them to another tier meanwhile; the closure itself must not hold a tensor.
Variable huber(const Variable& x) {
  if (x.dtype() != DType::f64 || !x.value.is_contiguous()) ops::refuse("huber", "contiguous f64", {x.value});
  const Tensor y = empty(x.shape(), DType::f64);
  const auto from = x.value.span<double>(), to = y.span<double>();
  for (size_t i = 0; i < to.size(); ++i) to[i] = std::abs(from[i]) < 1 ? from[i] * from[i] / 2 : std::abs(from[i]) - 0.5;
  Recorder r({x});
  const auto kept = r.save(x);
  return r.output(y, [=](Backward& b) {
    const auto at = b.saved(kept).span<double>(), dy = b.gradient().span<double>(), dx = b.target(0).span<double>();
    for (size_t i = 0; i < dx.size(); ++i) dx[i] = dy[i] * std::max(-1.0, std::min(1.0, at[i]));
  });
}

}  // namespace

int main() {
  const Tensor x = tensor_of({-3, -0.5, 0.25, 2}, {4}, DType::f64);
  const auto report = autograd::check_gradient([](const auto& in) { return huber(in[0]); }, {x});
  std::cout << report.text() << "\n";

  autograd::Tape tape;
  const Variable leaf = tape.input(x);
  const Variable hooked = autograd::with_hook(leaf, [](const Tensor& gradient) {
    std::cout << "on its way " << gradient << "\n";
    return gradient;
  });
  tape.backward(huber(hooked), ones({4}, DType::f64));
  std::cout << "arrived    " << tape.take_gradient(leaf) << "\n";

  try {
    huber(ones({2, 2}));
  } catch (const Error& error) {
    std::cout << error.what() << "\n";
  }
  return report.good() ? 0 : 1;
}
