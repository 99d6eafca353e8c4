// An op's gradients beside central differences in fp64, and an op of strided views beside itself. With h = 1e-6 the differences are good to
// h^2 f''' + eps / h, about 1e-9 for these sizes: 1e-6 relative is asked for.
#pragma once
#include "autograd/gradient_check.h"
#include "kernels/layout.h"
#include "tests/support/numbers.h"

namespace spillway::test {

using Function = std::function<autograd::Variable(const std::vector<autograd::Variable>&)>;

/// f of f64 inputs: each input gets a gradient, and it is the right one.
inline void check_gradient(const std::vector<Tensor>& inputs, const Function& f) {
  autograd::Tape tape;
  std::vector<autograd::Variable> variables;
  for (const Tensor& x : inputs) variables.push_back(tape.input(x));
  const autograd::Variable y = f(variables);
  tape.backward(y, random(y.shape(), DType::f64, 1));
  for (size_t n = 0; n < inputs.size(); ++n) ASSERT_TRUE(tape.take_gradient(variables[n]).defined()) << "input " << n;
  const autograd::GradientReport report = autograd::check_gradient(f, inputs);
  EXPECT_TRUE(report.good()) << report.text();
}

/// The same elements, the first and the last axis turned in memory.
inline Tensor turned(const Tensor& x) {
  if (x.rank() < 2) return x;
  const Tensor other = x.transpose(0, -1), copy = empty(other.shape(), x.dtype());
  kernels::copy_view(other, copy);
  return copy.transpose(0, -1);
}

/// f of the inputs and f of turned ones: the same bits, forward and backward, and what backward() wants saved is used up.
inline void check_views(const std::vector<Tensor>& inputs, const Function& f) {
  const auto run = [&](bool turn) {
    autograd::Tape tape;
    std::vector<autograd::Variable> variables;
    for (const Tensor& x : inputs) variables.push_back(tape.input(turn ? turned(x) : x));
    const autograd::Variable y = f(variables);
    tape.backward(y, y.value);
    EXPECT_EQ(tape.saved_bytes(), 0);
    std::vector<Tensor> results{y.value};
    for (const autograd::Variable& x : variables) results.push_back(tape.take_gradient(x));
    return results;
  };
  const std::vector<Tensor> plain = run(false), strided = run(true);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(same_bits(plain[i], strided[i])) << "result " << i;
}

/// f computes some tensors: the same bits on 1, 2 and 3 threads.
inline void check_threads(const std::function<std::vector<Tensor>()>& f) {
  const std::vector<Tensor> alone = f();
  for (int threads = 2; threads <= 3; ++threads) {
    with_threads(threads, [&] {
      const std::vector<Tensor> together = f();
      for (size_t i = 0; i < alone.size(); ++i) EXPECT_TRUE(same_bits(alone[i], together[i])) << "result " << i << ", " << threads;
    });
  }
}

/// The message of the Error that f throws; empty if it throws none.
template <class F>
std::string refusal(F f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

}  // namespace spillway::test
