// Lesson: the plain eager way. Write an expression on a tape, call loss.backward(), take the gradients, step by hand.
// Fits y = 2 x1 - 3 x2 + 1 to 64 points by gradient descent.
#include <cstdio>
#include <vector>

#include "base/random.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/reduce.h"

using namespace spillway;

namespace {

void sgd(const Tensor& weight, const Tensor& gradient, float learning_rate) {
  for (size_t i = 0; i < weight.span<float>().size(); ++i) weight.span<float>()[i] -= learning_rate * gradient.span<float>()[i];
}

}  // namespace

int main() {
  const Tensor x = empty({64, 2}, DType::f32), wanted = empty({64, 1}, DType::f32);
  for (u64 i = 0; i < 64; ++i) {
    float* row = x.data<float>() + 2 * i;
    row[0] = static_cast<float>(normal(RandomKey{1}, 0, i));
    row[1] = static_cast<float>(normal(RandomKey{1}, 1, i));
    wanted.data<float>()[i] = 2 * row[0] - 3 * row[1] + 1;
  }

  const Tensor weight = zeros({1, 2}, DType::f32), bias = zeros({1}, DType::f32);
  for (int step = 0; step <= 50; ++step) {
    autograd::Tape tape;
    const autograd::Variable w = tape.input(weight), b = tape.input(bias);
    const autograd::Variable error = ops::sub(ops::linear(x, w, b, ops::WeightLayout::out_in), wanted);
    const autograd::Variable loss = ops::mean(ops::mul(error, error));
    loss.backward();
    sgd(weight, tape.take_gradient(w), 0.2f);
    sgd(bias, tape.take_gradient(b), 0.2f);
    if (step % 10 == 0) std::printf("step %2d  loss %.6f\n", step, loss.value.item());
  }
  std::printf("y = %.3f x1 + %.3f x2 + %.3f\n", weight.data<float>()[0], weight.data<float>()[1], *bias.data<float>());
}
