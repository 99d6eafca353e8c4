// Compares an op's gradients with central differences in fp64, and its results on strided views with those on contiguous tensors. With h
// = 1e-6 the differences are accurate to h^2 f''' + eps / h, about 1e-9 for inputs of size 1; the check requires a relative error below
// 1e-6.
#pragma once
#include "autograd/gradient_check.h"
#include "kernels/layout/layout.h"
#include "tests/support/numbers.h"

namespace spillway::test {

using Function = std::function<autograd::Variable(const std::vector<autograd::Variable>&)>;

/// Checks that f, a function of f64 inputs, gives each input a gradient and that the gradient is right.
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

/// Returns the same elements as a view whose first and last axes are exchanged in memory.
inline Tensor turned(const Tensor& x) {
  if (x.rank() < 2) return x;
  const Tensor other = x.transpose(0, -1), copy = empty(other.shape(), x.dtype());
  kernels::copy_view(other, copy);
  return copy.transpose(0, -1);
}

/// Checks that f gives bitwise the same results for the inputs and for strided views of them, forward and backward, and that backward()
/// releases all saved tensors.
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

/// Checks that the tensors that f computes are bitwise the same on 1, 2 and 3 threads.
inline void check_threads(const std::function<std::vector<Tensor>()>& f) {
  const std::vector<Tensor> alone = f();
  for (int threads = 2; threads <= 3; ++threads) {
    with_threads(threads, [&] {
      const std::vector<Tensor> together = f();
      for (size_t i = 0; i < alone.size(); ++i) EXPECT_TRUE(same_bits(alone[i], together[i])) << "result " << i << ", " << threads;
    });
  }
}

/// Returns the message of the exception that f throws, or "" if it throws none.
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
