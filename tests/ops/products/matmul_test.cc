#include "ops/products/matmul.h"

#include "tests/support/gradient_check.h"
#include "tests/support/numbers.h"

namespace spillway::matmul_test {
namespace {

Tensor random(const Shape& shape, u64 seed) { return test::random(shape, DType::f64, seed); }

struct Form {
  Shape a, b, out;
};
const Form kForms[] = {{{7}, {7}, {}},
                       {{7}, {7, 3}, {3}},
                       {{5, 7}, {7}, {5}},
                       {{7}, {2, 7, 3}, {2, 3}},
                       {{2, 5, 7}, {7}, {2, 5}},
                       {{2, 5, 7}, {7, 3}, {2, 5, 3}},
                       {{5, 7}, {2, 7, 3}, {2, 5, 3}},
                       {{2, 5, 7}, {2, 7, 3}, {2, 5, 3}},
                       {{1, 5, 7}, {4, 7, 3}, {4, 5, 3}},
                       {{2, 1, 5, 7}, {3, 7, 1}, {2, 3, 5, 1}},
                       {{2, 1, 3, 2, 4}, {2, 1, 4, 5}, {2, 2, 3, 2, 5}}};

TEST(Matmul, OfRowsColumnsAndBatchesThatStretch) {
  for (const Form& f : kForms) {
    SCOPED_TRACE(to_string(f.a) + " " + to_string(f.b));
    const auto product = [](const auto& in) { return ops::matmul(in[0], in[1]); };
    EXPECT_EQ(ops::matmul(random(f.a, 1), random(f.b, 2)).shape(), f.out);
    test::check_gradient({random(f.a, 1), random(f.b, 2)}, product);
    test::check_views({random(f.a, 1), random(f.b, 2)}, product);
  }
}

// Each product of a batch must equal the product of its two matrices alone, to the bit.
TEST(Matmul, ResultsDoNotDependOnTheBatch) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    const Tensor a = test::random({2, 1, 5, 37}, dtype, 1), b = test::random({3, 37, 11}, dtype, 2);
    const Tensor all = ops::matmul(a, b).value.reshape({6, 5, 11});
    for (i64 i = 0; i < 6; ++i) {
      const Tensor left = a.reshape({2, 5, 37}).slice(0, i / 3, i / 3 + 1), right = b.slice(0, i % 3, i % 3 + 1);
      EXPECT_TRUE(test::same_bits(all.slice(0, i, i + 1), ops::matmul(left.reshape({5, 37}), right.reshape({37, 11})).value)) << i;
    }
  }
}

TEST(Matmul, RefusesAndSaysWhatCame) {
  const std::string expected =
      "[matmul] expected a[..., M, K] and b[..., K, N] of the same dtype, with at least one element and with batch axes that broadcast";
  EXPECT_EQ(test::refusal([] { ops::matmul(random({2, 3}, 1), random({2, 3}, 1)); }), expected + ", got f64 [2, 3] and f64 [2, 3]");
  EXPECT_EQ(test::refusal([] {
              ops::matmul(random({2, 4, 3}, 1), random({3, 3, 2}, 1));
            }),
            expected + ", got f64 [2, 4, 3] and f64 [3, 3, 2]");
  EXPECT_EQ(test::refusal([] { ops::matmul(random({3}, 1), test::random({3}, DType::f32, 1)); }), expected + ", got f64 [3] and f32 [3]");
  EXPECT_EQ(test::refusal([] { ops::matmul(random({}, 1), random({3}, 1)); }), expected + ", got f64 [] and f64 [3]");
}

}  // namespace
}  // namespace spillway::matmul_test
