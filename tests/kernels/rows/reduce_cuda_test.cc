// Compares sums and broadcasting arithmetic on a GPU with the CPU. Results of arithmetic are bitwise equal to the CPU's. Sums add in fp64
// in another order than the CPU.
#include "kernels/elementwise/pointwise.h"
#include "kernels/rows/reduce.h"

#include "tests/support/gpu.h"
#include "tests/support/numbers.h"

namespace spillway::reduce_cuda_test {
namespace {

using kernels::Pointwise;

constexpr DType kFloats[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

class ReduceTwins : public test::GpuTest {
 protected:
  // Sums a view on the GPU that begins `first` elements into its storage.
  Tensor sum(const Tensor& x, i64 first, const Shape& extents, double factor, DType out) {
    const Tensor to = gpu().empty({extents[0], extents[2]}, out), whole = gpu().empty({first + x.elems()}, x.dtype());
    gpu().run([&] {
      const Tensor view = whole.slice(0, first, first + x.elems()).reshape(x.shape());
      kernels::pointwise(kernels::Pointwise::same, {gpu()(x)}, {}, view);
      kernels::sum_axis(view, extents[0], extents[1], extents[2], factor, to);
    });
    return gpu().host(to);
  }

  // Compares a sum with one in fp64. n additions in fp64, in any order, err by at most n half ulps
  // of the sum of magnitudes. The product with the factor and the rounding to `out` err once more.
  void check(const Shape& extents, DType dtype, DType out) {
    SCOPED_TRACE(to_string(extents) + " " + std::string(to_string(dtype)) + " " + std::string(to_string(out)));
    const i64 outer = extents[0], n = extents[1], inner = extents[2];
    const Tensor x = test::random(extents, dtype, 1), to = sum(x, 0, extents, 0.3, out);
    for (i64 o = 0; o < outer; ++o) {
      for (i64 c = 0; c < inner; ++c) {
        long double want = 0, magnitude = 0;
        for (i64 i = 0; i < n; ++i) {
          const double one = test::at(x, (o * n + i) * inner + c);
          want += one, magnitude += std::abs(one);
        }
        const double total = static_cast<double>(want * 0.3), error = static_cast<double>(magnitude) * static_cast<double>(n + 1) * 0x1p-53;
        const double rounding = test::half_ulp(wide_dtype(out)) + (is_half(out) ? test::half_ulp(out) : 0);
        ASSERT_NEAR(test::at(to, o * inner + c), total, error + rounding * (std::abs(total) + error)) << o << " " << c;
      }
    }
    if (n > 0) {
      EXPECT_TRUE(test::same_bits(sum(x, 1, extents, 0.3, out), to));
    }
  }
  void check(const Shape& extents) {
    for (const DType dtype : kFloats) check(extents, dtype, dtype);
    check(extents, DType::bf16, DType::f32);
    check(extents, DType::f16, DType::f32);
  }
};

TEST_F(ReduceTwins, Rows) {
  check({1, 1, 1});
  check({9, 33, 1});
  check({3, 1024, 1});
  check({2, 1029, 1});   // one thread block computes each sum
  check({1, 16391, 1});  // one large thread block computes the sum
}

TEST_F(ReduceTwins, Columns) {
  check({1, 1, 2});
  check({1, 70, 3});
  check({1, 300, 17});
  check({1, 5, 200});
  check({64, 2, 33}, DType::bf16, DType::f32);   // each thread block handles whole warps of columns
  check({1, 2100, 9}, DType::bf16, DType::f32);  // loads are issued before the additions, and some rows remain at the end
}

TEST_F(ReduceTwins, NothingSumsToZero) {
  const Tensor none = gpu().empty({3, 0}, DType::f32), rows = gpu()(test::random({3}, DType::f32, 1)),
               columns = gpu()(test::random({3}, DType::f32, 1));
  gpu().run([&] {
    kernels::sum_axis(none, 3, 0, 1, 1, rows);
    kernels::sum_axis(none, 1, 0, 3, 1, columns);
  });
  for (i64 i = 0; i < 3; ++i) {
    EXPECT_EQ(test::at(gpu().host(rows), i), 0);
    EXPECT_EQ(test::at(gpu().host(columns), i), 0);
  }
}

TEST_F(ReduceTwins, ArithmeticHasTheBitsOfTheCpu) {
  const std::pair<Shape, Shape> pairs[] = {{{}, {}},        {{5}, {5}},        {{1001}, {}},        {{4, 16}, {16}},
                                           {{16}, {3, 16}}, {{4, 1}, {4, 24}}, {{3, 1, 5}, {7, 1}}, {{2, 3, 1, 4}, {1, 3, 6, 4}}};
  for (const auto& [left, right] : pairs) {
    for (const DType dtype : kFloats) {
      const Shape shape = kernels::broadcast_shape(left, right);
      const Tensor a = test::random(left, dtype, 1), b = test::random(right, dtype, 2), want = empty(shape, dtype);
      const Tensor got = gpu().empty(shape, dtype), in_place = gpu()(a);
      for (const Pointwise op : {Pointwise::add, Pointwise::sub, Pointwise::mul, Pointwise::div}) {
        kernels::pointwise(op, {a, b}, {}, want);
        gpu().run([&] { kernels::pointwise(op, {gpu()(a), gpu()(b)}, {}, got); });
        EXPECT_TRUE(test::same_bits(gpu().host(got), want)) << to_string(left) << " " << to_string(right) << " " << static_cast<int>(op);
      }
      if (left == shape) {
        gpu().run([&] { kernels::pointwise(Pointwise::div, {in_place, gpu()(b)}, {}, in_place); });
        EXPECT_TRUE(test::same_bits(gpu().host(in_place), want));
      }
    }
  }
}

TEST_F(ReduceTwins, Broadcast) {
  const std::pair<Shape, Shape> pairs[] = {
      {{}, {33}}, {{7}, {7}}, {{16}, {5, 16}}, {{5, 1}, {5, 16}}, {{3, 1, 5}, {3, 4, 5}}, {{1, 6, 1}, {2, 6, 8}}};
  for (const auto& [from, to] : pairs) {
    for (const DType dtype : kFloats) {
      const Tensor x = test::random(from, dtype, 1), want = empty(to, dtype), got = gpu().empty(to, dtype);
      kernels::pointwise(kernels::Pointwise::same, {x}, {}, want);
      gpu().run([&] { kernels::pointwise(kernels::Pointwise::same, {gpu()(x)}, {}, got); });
      EXPECT_TRUE(test::same_bits(gpu().host(got), want)) << to_string(from) << " " << to_string(to);
    }
  }
}

// Packs require that all operands begin at a multiple of the pack's size. An odd offset of one operand forces single elements.
TEST_F(ReduceTwins, InOddPlaces) {
  for (const DType dtype : kFloats) {
    const Tensor a = test::random({4 * 16 + 1}, dtype, 1), b = test::random({17}, dtype, 2), want = empty({4, 16}, dtype);
    for (const i64 at_a : {0, 1}) {
      for (const i64 at_b : {0, 1}) {
        const auto left = [&](const Tensor& t) { return t.slice(0, at_a, at_a + 64).reshape({4, 16}); };
        const auto right = [&](const Tensor& t) { return t.slice(0, at_b, at_b + 16); };
        const Tensor got = gpu().empty({4, 16}, dtype);
        kernels::pointwise(Pointwise::sub, {left(a), right(b)}, {}, want);
        gpu().run([&] { kernels::pointwise(Pointwise::sub, {left(gpu()(a)), right(gpu()(b))}, {}, got); });
        EXPECT_TRUE(test::same_bits(gpu().host(got), want)) << at_a << " " << at_b;
      }
    }
  }
}

}  // namespace
}  // namespace spillway::reduce_cuda_test
