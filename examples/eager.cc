// Lesson: tensors and autograd in the plain eager way. Shows how to make and print tensors, record an expression on a tape, call
// loss.backward(), and step an optimizer. Fits y = 2 x1 - 3 x2 + 1 to 64 points.
#include <iostream>

#include "autograd/no_grad.h"
#include "eager/optimizer.h"
#include "ops/elementwise/operators.h"
#include "ops/layout/shape.h"
#include "ops/products/linear.h"
#include "ops/rows/reduce.h"
#include "tensor/create.h"
#include "tensor/print.h"

using namespace spillway;
using autograd::Variable;

int main() {
  // Random numbers depend only on a key and on the element's position. There is no global generator, and every device gives the same
  // numbers.
  const Tensor x = randn({64, 2}, RandomKey{1});
  const Variable x1 = ops::index(x, {ops::Range{}, ops::Range{0, 1}}), x2 = ops::index(x, {ops::Range{}, ops::Range{1, 2}});
  const Tensor wanted = (2 * x1 - 3 * x2 + 1).value;
  std::cout << "every twentieth point:\n" << ops::index(x, {ops::Range{.step = 20}}).value << "\n";

  // These parameters belong to no model. Their memory and their gradients live as long as `weights`.
  const auto weight = nn::make_parameter("weight", {1, 2}, DType::f32, {}), bias = nn::make_parameter("bias", {1}, DType::f32, {});
  nn::EagerParameters weights({weight, bias});
  eager::Optimizer optimizer(weights, optim::SgdSettings{.lr = 0.1, .momentum = 0.5});

  const auto loss_of = [&](autograd::Tape& tape) {
    const Variable w = tape.parameter(weight->value(), weight->id), b = tape.parameter(bias->value(), bias->id);
    const Variable error = ops::linear(x, w, b, ops::WeightLayout::out_in) - wanted;
    return ops::mean(error * error);
  };
  for (int step = 0; step <= 50; ++step) {
    autograd::Tape tape(&weights);  // the recorded operations are released with the tape
    const Variable loss = loss_of(tape);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    if (step % 10 == 0) std::cout << "step " << step << "  loss " << loss.value.item() << "\n";
  }

  const autograd::NoGrad looking;  // no operation is recorded from here on
  autograd::Tape tape(&weights);
  std::cout << "loss " << loss_of(tape).value.item() << ", weight " << weight->value() << ", bias " << bias->value() << "\n";
}
