// Tests the sum of the losses of rows: its value and gradient against numbers worked
// out by hand, in all types. Padding counts for nothing, whatever numbers it holds.
#include "ops/losses/row_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "ops/layout/shape.h"
#include "tensor/create.h"
#include "tests/support/numbers.h"

namespace spillway::row_loss_test {
namespace {

using ops::Variable;

Tensor mask(std::initializer_list<double> rows) { return tensor_of(rows, {static_cast<i64>(rows.size())}, DType::uint8); }

// All numbers of the test are exact in each type, so results are compared for equality.
TEST(RowLoss, SumsRowsThatCountAndScalesTheirGradient) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    const Tensor losses = tensor_of({1, 2, 4, 8, 16, 32}, {3, 2}, dtype);
    autograd::Tape tape;
    const Variable x = tape.input(losses);
    const Variable sum = ops::sum_of_rows(x, mask({1, 0, 1}), 0.25);
    EXPECT_EQ(sum.dtype(), DType::f64);
    EXPECT_EQ(sum.value.item(), 1 + 2 + 16 + 32) << to_string(dtype);
    tape.backward(sum, tensor_of({2}, {}, DType::f64));
    EXPECT_EQ(values_of(tape.take_gradient(x)), (std::vector<double>{0.5, 0.5, 0, 0, 0.5, 0.5})) << to_string(dtype);
  }
}

TEST(RowLoss, IsSummedInFp64) {
  const Tensor losses = tensor_of({16777216, 1, 1, -16777216}, {4}, DType::f32);
  EXPECT_EQ(ops::sum_of_rows(losses, {}, 1).value.item(), 2);
}

TEST(RowLoss, NothingOfPaddingReachesValueOrGradient) {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  autograd::Tape tape;
  const Variable x = tape.input(tensor_of({3, nan, infinity}, {3}, DType::f32));
  const Variable sum = ops::sum_of_rows(x, mask({1, 0, 0}), 1);
  EXPECT_EQ(sum.value.item(), 3);
  sum.backward();
  EXPECT_EQ(values_of(tape.take_gradient(x)), (std::vector<double>{1, 0, 0}));
}

TEST(RowLoss, TakesViews) {
  autograd::Tape tape;
  const Variable x = tape.input(tensor_of({1, 2, 3, 4, 5, 6}, {2, 3}, DType::f64));
  const Variable sum = ops::sum_of_rows(ops::transpose(x, 0, 1), mask({0, 1, 1}), 3);
  EXPECT_EQ(sum.value.item(), 2 + 3 + 5 + 6);
  sum.backward();
  EXPECT_EQ(values_of(tape.take_gradient(x)), (std::vector<double>{0, 3, 3, 0, 3, 3}));
}

TEST(RowLoss, RefusesAMaskOfOtherRows) {
  try {
    ops::sum_of_rows(tensor_of({1, 2}, {2}, DType::f32), mask({1, 1, 1}), 1);
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("[sum_of_rows]"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace spillway::row_loss_test
