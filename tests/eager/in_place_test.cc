// Tests that a value that changes between forward and backward is detected, as by PyTorch's version counters. No gradient is
// computed from a new value, and a failed backward leaves no gradient behind. Moving a value to other memory is no change.
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "device/memory_pool.h"
#include "eager/optimizer.h"
#include "ops/elementwise/operators.h"
#include "ops/rows/reduce.h"
#include "tensor/create.h"

namespace spillway::eager::in_place_test {
namespace {

using autograd::Tape;
using autograd::Variable;

std::string refusal(const std::function<void()>& backward) {
  try {
    backward();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    return error.what();
  }
  return "differentiated";
}

const std::string kWords = "has been modified by an inplace operation: the f64 [2] that mul saved in the forward pass";

struct One {
  std::shared_ptr<nn::Parameter> p = nn::make_parameter("w", {2}, DType::f64, {});
  nn::EagerParameters weights{std::vector{p}};
  Optimizer optimizer{weights, optim::SgdSettings{.lr = 1}};
  One() { put({2, 3}); }
  void put(std::array<double, 2> values) const { std::memcpy(p->value().raw(), values.data(), sizeof values); }
  Variable loss(Tape& tape) const {
    const Variable w = tape.parameter(p->value(), p->id);
    return ops::sum(w * w);
  }
};

TEST(InPlace, AStepBetweenForwardAndBackwardIsRefused) {
  One one;
  Tape first(&one.weights), second(&one.weights);
  const Variable a = one.loss(first), b = one.loss(second);
  a.backward();
  one.optimizer.step();
  EXPECT_NE(refusal([&] { b.backward(); }).find(kWords), std::string::npos);
  EXPECT_EQ(one.weights.passes(one.p->id), 1) << "nothing of the second pass was added";
  one.optimizer.zero_grad();
  Tape third(&one.weights);
  one.loss(third).backward();
  EXPECT_EQ(values_of(one.weights.gradient(one.p->id)), (std::vector<double>{2 * (2 - 4), 2 * (3 - 6)}));
}

TEST(InPlace, WhoeverWritesSaysSo) {
  One one;
  Tape tape(&one.weights), other(&one.weights);
  const Variable a = one.loss(tape), b = one.loss(other);
  one.put({0, 0});
  one.p->value().storage()->written();
  EXPECT_NE(refusal([&] { a.backward(); }).find(kWords), std::string::npos);
  EXPECT_NE(refusal([&] { other.backward_input(b); }).find(kWords), std::string::npos) << "in two parts too";
}

TEST(InPlace, OtherMemoryIsAnotherValue) {
  One one;
  Tape tape(&one.weights);
  const Variable a = one.loss(tape);
  one.weights.adopt(one.p->id, tensor_of({2, 3}, {2}, DType::f64));
  EXPECT_NE(refusal([&] { a.backward(); }).find(kWords), std::string::npos);
  // A write through memory() counts as a change of the parameter's value.
  Tape again(&one.weights);
  const Variable b = one.loss(again);
  one.weights.memory(one.p->id).storage()->written();
  EXPECT_NE(refusal([&] { b.backward(); }).find(kWords), std::string::npos);
}

// As in PyTorch, a value may change if the loss does not depend on it or if no op saved it.
TEST(InPlace, OnlyWhatIsNeededCounts) {
  Tape tape;
  const Variable x = tape.input(tensor_of({1, 2}, {2}, DType::f64)), w = tape.input(tensor_of({3, 4}, {2}, DType::f64));
  const Variable aside = w * w, loss = ops::sum(x * 2.0 + x);
  static_cast<void>(aside);
  w.value.storage()->written();
  x.value.storage()->written();
  loss.backward();
  EXPECT_EQ(values_of(tape.take_gradient(x)), (std::vector<double>{3, 3}));
}

TEST(InPlace, BytesThatMoveAreTheSameValues) {
  Tape tape;
  auto there = MemoryPool::heap().allocate(16, "test");
  const double values[] = {5, 7};
  std::memcpy(there.data(), values, sizeof values);
  const auto storage = Storage::vacant(Device::cpu(), 16);
  storage->fill(there.data());
  const Variable x = tape.input(Tensor(storage, 0, {2}, DType::f64)), loss = ops::sum(x * x);
  storage->drop();
  storage->fill(there.data());
  loss.backward();
  EXPECT_EQ(values_of(tape.take_gradient(x)), (std::vector<double>{10, 14}));
}

}  // namespace
}  // namespace spillway::eager::in_place_test
