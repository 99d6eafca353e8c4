// Checks the gated norm against its formula, written in other ops, and its gradients against central differences.
#include "ops/rows/gated_norm.h"

#include "ops/elementwise/glu.h"
#include "ops/rows/norm.h"
#include "tests/support/gradient_check.h"

namespace spillway::gated_norm_test {
namespace {

using ops::Variable;

std::vector<Tensor> inputs(const Shape& shape, DType dtype) {
  return {test::random(shape, dtype, 1), test::random(shape, dtype, 2), test::random({shape[-1]}, dtype, 3)};
}

TEST(GatedNorm, IsTheNormOfTheGatedInput) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    const auto in = inputs({2, 5, 12}, dtype);
    EXPECT_TRUE(
        test::same_bits(ops::gated_rms_norm(in[0], in[1], in[2], 1e-5).value, ops::rms_norm(ops::swiglu(in[1], in[0]), in[2], 1e-5).value));
  }
}

TEST(GatedNorm, EachGroupIsANormOfItsOwn) {
  const auto in = inputs({2, 5, 12}, DType::f32);
  const Tensor y = ops::gated_rms_norm(in[0], in[1], in[2], 1e-5, 3).value;
  for (i64 g = 0; g < 3; ++g) {
    const auto part = [&](size_t i) { return Variable(in[i].slice(in[i].rank() - 1, 4 * g, 4 * g + 4)); };
    const Tensor alone = ops::gated_rms_norm(part(0), part(1), part(2), 1e-5).value;
    for (i64 row = 0; row < 10; ++row) {
      for (i64 j = 0; j < 4; ++j) EXPECT_EQ(test::at(alone, row * 4 + j), test::at(y, row * 12 + 4 * g + j));
    }
  }
}

TEST(GatedNorm, Gradients) {
  for (const i64 groups : {1, 2, 3}) {
    const auto norm = [=](const auto& in) { return ops::gated_rms_norm(in[0], in[1], in[2], 1e-5, groups); };
    test::check_gradient(inputs({3, 2, 6}, DType::f64), norm);
    test::check_views(inputs({3, 2, 6}, DType::f64), norm);
  }
}

}  // namespace
}  // namespace spillway::gated_norm_test
