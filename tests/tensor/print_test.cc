// Tests that tensors are printed as PyTorch prints the same numbers, except for where dtype and shape are shown.
#include "tensor/print.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "device/arena.h"
#include "tensor/create.h"

namespace spillway::print_test {
namespace {

TEST(PrintTensor, StandsInColumns) {
  EXPECT_EQ(to_string(tensor_of({1, -2.5, 0, 4}, {2, 2})), "[[ 1.0000, -2.5000],\n [ 0.0000,  4.0000]] f32 [2, 2]");
  EXPECT_EQ(to_string(tensor_of({1, 20, -3}, {3}, DType::int32)), "[ 1, 20, -3] i32 [3]");
  EXPECT_EQ(to_string(tensor_of({1, NAN, -INFINITY}, {3}, DType::bf16)), "[  1.,  nan, -inf] bf16 [3]");
  EXPECT_EQ(to_string(tensor_of({0, 10, -3}, {3})), "[ 0., 10., -3.] f32 [3]");
  EXPECT_EQ(to_string(full({}, 2.25, DType::f64)), "2.2500 f64 []");
  EXPECT_EQ(to_string(empty({0}, DType::f32)), "[] f32 [0]");
  EXPECT_EQ(to_string(Tensor()), "undefined");
}

TEST(PrintTensor, PutsEmptyLinesBetweenMatrices) {
  EXPECT_EQ(to_string(arange(0, 8, 1, DType::int64).reshape({2, 2, 2})), "[[[0, 1],\n  [2, 3]],\n\n [[4, 5],\n  [6, 7]]] i64 [2, 2, 2]");
}

TEST(PrintTensor, WritesPowersOfTenWhereFourDigitsWouldNotShow) {
  EXPECT_EQ(to_string(tensor_of({0.5, 1e-7}, {2}, DType::f64)), "[5.0000e-01, 1.0000e-07] f64 [2]");
  EXPECT_EQ(to_string(tensor_of({1.5, 2000}, {2}, DType::f64)), "[1.5000e+00, 2.0000e+03] f64 [2]");
  EXPECT_EQ(to_string(tensor_of({1, 2000}, {2}, DType::f64)), "[1.0000e+00, 2.0000e+03] f64 [2]");
}

TEST(PrintTensor, ShowsTheEndsOfWhatIsLarge) {
  EXPECT_EQ(to_string(arange(0, 1001, 1, DType::int32)), "[   0,    1,    2,  ...,  998,  999, 1000] i32 [1001]");
  EXPECT_EQ(to_string(arange(0, 1400, 1, DType::int32).reshape({7, 200})),
            "[[   0,    1,    2,  ...,  197,  198,  199],\n [ 200,  201,  202,  ...,  397,  398,  399],\n"
            " [ 400,  401,  402,  ...,  597,  598,  599],\n ...,\n [ 800,  801,  802,  ...,  997,  998,  999],\n"
            " [1000, 1001, 1002,  ..., 1197, 1198, 1199],\n [1200, 1201, 1202,  ..., 1397, 1398, 1399]] i32 [7, 200]");
}

TEST(PrintTensor, GoesToStreams) {
  std::ostringstream out;
  out << ones({1}, DType::boolean);
  EXPECT_EQ(out.str(), "[true] bool [1]");
}

TEST(PrintTensor, SaysWhereThereAreNoNumbers) {
  Arena arena;
  const Stream stream{Device::meta(), nullptr, &arena};
  const StreamScope scope(stream);
  EXPECT_EQ(to_string(zeros({2, 3}, DType::f32)), "f32 [2, 3] on meta");
}

}  // namespace
}  // namespace spillway::print_test
