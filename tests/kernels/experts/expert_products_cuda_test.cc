// Compares products over the rows of experts on a GPU with fp64, within bounds that are derived below, and with each other to the bit. In a
// build with SPILLWAY_CUDA=EMULATED the GPU's code runs on the CPU.
#include <cmath>
#include <limits>

#include "kernels/experts/expert_products.h"
#include "kernels/layout/layout.h"
#include "tests/kernels/experts/support_experts.h"
#include "tests/support/gpu.h"

namespace spillway::expert_products_cuda_test {
namespace {

using kernels::ExpertProduct;
using kernels::ExpertWeights;
using kernels::WeightFormat;

class ExpertProductTwins : public test::GpuTest {};

Tensor scratch(i64 bytes) { return bytes > 0 ? empty({bytes}, DType::uint8) : Tensor(); }

Tensor product_of(const Tensor& begins, ExpertProduct product, const Tensor& a, const ExpertWeights& w) {
  const Tensor out = empty({a.size(0), w.shape[product == ExpertProduct::with_transpose ? 0 : 1]}, a.dtype());
  const i64 bytes = kernels::expert_rows_workspace_bytes(product, a.size(0), w.shape, w.format, a.dtype());
  kernels::multiply_expert_rows(begins, product, a, w, out, scratch(bytes));
  return out;
}

struct Products {
  Tensor y, dx;
  std::vector<Tensor> dw;
};

// Returns y = x w^T, dx = dy w and dw = dy^T x of all experts, each over its own rows.
Products multiplied(const Tensor& begins, const Tensor& x, const ExpertWeights& w, const Tensor& dy, DType gradients) {
  Products p{product_of(begins, ExpertProduct::with_transpose, x, w), product_of(begins, ExpertProduct::with_weight, dy, w), {}};
  for (size_t e = 0; e < w.stored.size(); ++e) p.dw.push_back(empty(w.shape, gradients));
  const i64 bytes = kernels::expert_weight_workspace_bytes(x.size(0), w.shape[0], w.shape[1], x.dtype(), gradients);
  kernels::multiply_over_expert_rows(begins, dy, x, p.dw, scratch(bytes));
  return p;
}

ExpertWeights weights(i64 experts, i64 outputs, i64 inputs, DType dtype) {
  ExpertWeights w{{}, WeightFormat::plain, {outputs, inputs}};
  for (i64 e = 0; e < experts; ++e) w.stored.push_back(test::random(w.shape, dtype, 10 + static_cast<u64>(e)));
  return w;
}
ExpertWeights quantized(const ExpertWeights& w, WeightFormat format) {
  ExpertWeights q{{}, format, w.shape};
  for (const Tensor& one : w.stored) {
    const Tensor values = test::as(DType::f32, one);
    const i64 count = values.elems();
    q.stored.push_back(zeros({kernels::quantized_bytes(format, count) / size_of(one.dtype())}, one.dtype()));
    for (i64 u = 0; u * kernels::kUnitValues < count; ++u) {
      const auto rest = values.span<float>().subspan(static_cast<size_t>(u * kernels::kUnitValues));
      kernels::quantize(format, rest.first(std::min<size_t>(rest.size(), kernels::kUnitValues)),
                        q.stored.back().raw() + u * kernels::unit_bytes(format));
    }
  }
  return q;
}
// Returns the weights with f as each tensor's new value.
template <class F>
ExpertWeights each(ExpertWeights w, F&& f) {
  for (Tensor& one : w.stored) one = f(one);
  return w;
}
Tensor magnitudes(const Tensor& t) {
  const Tensor all = test::as(DType::f64, t);
  for (double& x : all.span<double>()) x = std::abs(x);
  return all;
}

// Returns where each expert's rows begin. The experts get the given numbers of rows.
Tensor begins_of(const std::vector<i32>& rows) {
  std::vector<i32> begins{0};
  for (const i32 n : rows) begins.push_back(begins.back() + n);
  return test::ints(begins, {static_cast<i64>(begins.size())});
}

// Checks |got - want| <= factor * terms * `sums`, where `sums` are the sums of the products' magnitudes, plus the final rounding.
void expect_within(const Tensor& got, const Tensor& want, const Tensor& sums, double factor, i64 terms, const std::string& what) {
  for (i64 i = 0; i < want.elems(); ++i) {
    const double bound = factor * static_cast<double>(terms) * test::at(sums, i);
    const double rounding = test::stored_error(got.dtype(), std::abs(test::at(want, i)) + bound);
    ASSERT_LE(std::abs(test::at(got, i) - test::at(want, i)), bound + rounding) << what << " " << i << " " << to_string(got.dtype());
  }
}

// The numbers of rows of the experts. The third has several tiles of 64 rows for an expert, the last several of 128 (at least 256 rows an
// expert on average).
const std::vector<std::vector<i32>> kRows = {{1}, {3, 0, 5}, {70, 0, 1, 64, 9}, {520, 3}};

// Tensor cores add 8 or 16 exact products to a sum at a time. They cut each term below the 24th bit of the largest one, and then the sum
// (Fasi et al., Numerical behavior of NVIDIA tensor cores, 2021). So a step errs by at most (8 + 1) + 1 units of 2^-23 of the sum of
// magnitudes, and K terms by at most 10 / 8 K units. A sum of K terms in f32 (f64) that rounds each product and each sum errs by at most (K
// + 1) 2^-24 (2^-53) of it; a CPU is within that too.
TEST_F(ExpertProductTwins, NearFp64) {
  constexpr i64 kExtents[][2] = {{1, 1}, {37, 5}, {16, 24}, {136, 104}};  // outputs and inputs; the last two are for tensor cores
  for (const std::vector<i32>& of_experts : kRows) {
    const Tensor begins = begins_of(of_experts);
    const i64 M = begins.data<i32>()[of_experts.size()], E = std::ssize(of_experts);
    for (const auto& [outputs, inputs] : kExtents) {
      if (M > 100 && outputs != 136) continue;
      for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
        if (M > 200 && !is_half(dtype)) continue;
        const Tensor x = test::random({M, inputs}, dtype, 1), dy = test::random({M, outputs}, dtype, 2);
        const ExpertWeights w = weights(E, outputs, inputs, dtype);
        const auto wide = [](const Tensor& t) { return test::as(DType::f64, t); };
        const Products exact = multiplied(begins, wide(x), each(w, wide), wide(dy), DType::f64),
                       sums = multiplied(begins, magnitudes(x), each(w, magnitudes), magnitudes(dy), DType::f64);
        const DType gradients = wide_dtype(dtype);
        const Products here = multiplied(begins, x, w, dy, gradients);
        const Products there = gpu().run([&] { return multiplied(gpu()(begins), gpu()(x), each(w, gpu()), gpu()(dy), gradients); });
        const double u = test::half_ulp(wide_dtype(dtype)), factor = is_half(dtype) ? 2.5 * u : 2 * u;
        for (const Products* got : {&here, &there}) {
          const auto host = [&](const Tensor& t) { return got == &there ? gpu().host(t) : t; };
          expect_within(host(got->y), exact.y, sums.y, factor, inputs, "y");
          expect_within(host(got->dx), exact.dx, sums.dx, factor, outputs, "dx");
          for (size_t e = 0; e < w.stored.size(); ++e) expect_within(host(got->dw[e]), exact.dw[e], sums.dw[e], factor, M, "dw");
        }
      }
    }
  }
}

// f32 sums each element term by term, rounding each product and each sum, as the loop here does.
TEST_F(ExpertProductTwins, Fp32HasTheBitsOfALoop) {
  const Tensor begins = begins_of({5, 0, 90}), x = test::random({95, 70}, DType::f32, 1), dy = test::random({95, 66}, DType::f32, 2);
  const ExpertWeights w = weights(3, 66, 70, DType::f32);
  const Products got = gpu().run([&] { return multiplied(gpu()(begins), gpu()(x), each(w, gpu()), gpu()(dy), DType::f32); });
  const auto expect = [&](const Tensor& out, const auto& a, const auto& b, i64 begin, i64 rows, i64 terms) {
    const Tensor all = gpu().host(out);
    for (i64 i = begin; i < begin + rows; ++i) {
      for (i64 j = 0; j < all.size(1); ++j) {
        float sum = 0;
        for (i64 t = 0; t < terms; ++t) sum += a(i, t) * b(t, j);
        ASSERT_EQ(all.data<float>()[i * all.size(1) + j], sum) << i << " " << j;
      }
    }
  };
  const auto in = [](const Tensor& t) { return [&t](i64 i, i64 j) { return t.data<float>()[i * t.size(1) + j]; }; };
  const auto turned = [](const Tensor& t) { return [&t](i64 i, i64 j) { return t.data<float>()[j * t.size(1) + i]; }; };
  expect(got.y, in(x), turned(w.stored[0]), 0, 5, 70);
  expect(got.y, in(x), turned(w.stored[2]), 5, 90, 70);
  expect(got.dx, in(dy), in(w.stored[0]), 0, 5, 66);
  expect(got.dx, in(dy), in(w.stored[2]), 5, 90, 66);
  const Tensor late_x = x.slice(0, 5, 95), late_dy = dy.slice(0, 5, 95);
  expect(got.dw[0], turned(dy), in(x), 0, 66, 5);
  expect(got.dw[1], turned(dy), in(x), 0, 66, 0);
  expect(got.dw[2], turned(late_dy), in(late_x), 0, 66, 90);
}

// Quantized weights are dequantized on their way to the product, to the values that dequantize() gives. Expert 1 has no rows and NaN as
// scales, so it must not be read.
TEST_F(ExpertProductTwins, QuantizedHasTheBitsOfDequantized) {
  const std::vector<i32> of_experts{70, 0, 3};
  const Tensor begins = begins_of(of_experts);
  constexpr i64 kExtents[][2] = {{136, 200}, {37, 21}};  // one for tensor cores, one not
  for (const auto& [outputs, inputs] : kExtents) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const Tensor x = test::random({73, inputs}, dtype, 1), dy = test::random({73, outputs}, dtype, 2);
      for (const WeightFormat format : {WeightFormat::int8, WeightFormat::nf4, WeightFormat::bf16}) {
        if (format == WeightFormat::bf16 && dtype == DType::f16) continue;  // bf16 is for products in bf16 and wider types
        ExpertWeights stored = quantized(weights(3, outputs, inputs, dtype), format);
        std::fill_n(stored.stored[1].raw(), stored.stored[1].bytes(), std::byte{0xff});
        ExpertWeights values = each(stored, [&](const Tensor& units) {
          const Tensor all = empty({outputs, inputs}, dtype);
          kernels::dequantize(format, units, all);
          return all;
        });
        values.format = WeightFormat::plain;
        for (const ExpertProduct product : {ExpertProduct::with_transpose, ExpertProduct::with_weight}) {
          const Tensor& a = product == ExpertProduct::with_transpose ? x : dy;
          const auto there = [&](const ExpertWeights& w) {
            return gpu().host(gpu().run([&] { return product_of(gpu()(begins), product, gpu()(a), each(w, gpu())); }));
          };
          EXPECT_TRUE(test::same_bits(there(stored), there(values))) << to_string(dtype) << static_cast<int>(format) << outputs;
          EXPECT_TRUE(test::same_bits(product_of(begins, product, a, stored), product_of(begins, product, a, values)))
              << to_string(dtype) << static_cast<int>(format);
        }
      }
    }
  }
}

// A row's result depends on neither the other rows nor the tile that it lies in: the rows of one expert, after other rows or alone, in
// tiles of 64 rows or of 128, have the same bits. An expert's sum over rows does not depend on where its rows lie either.
TEST_F(ExpertProductTwins, BitsDoNotDependOnOtherRows) {
  constexpr i64 kOutputs = 40, kInputs = 72, kOfExpert = 540, kBefore = 37;
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    const Tensor x = test::random({kBefore + kOfExpert, kInputs}, dtype, 1), dy = test::random({kBefore + kOfExpert, kOutputs}, dtype, 2);
    const ExpertWeights w = weights(3, kOutputs, kInputs, dtype);
    const auto host = [&](const Products& p) { return Products{gpu().host(p.y), gpu().host(p.dx), {gpu().host(p.dw[0])}}; };
    const auto late = [](const Tensor& t) { return t.slice(0, kBefore, kBefore + kOfExpert); };
    const Products among = gpu().run([&] {
      return multiplied(gpu()(begins_of({kBefore, 0, kOfExpert})), gpu()(x), each(w, gpu()), gpu()(dy), wide_dtype(dtype));
    });
    const ExpertWeights last{{w.stored[2]}, w.format, w.shape};
    const Products alone = host(gpu().run(
        [&] { return multiplied(gpu()(begins_of({kOfExpert})), gpu()(late(x)), each(last, gpu()), gpu()(late(dy)), wide_dtype(dtype)); }));
    EXPECT_TRUE(test::same_bits(late(gpu().host(among.y)), alone.y)) << to_string(dtype);
    EXPECT_TRUE(test::same_bits(late(gpu().host(among.dx)), alone.dx)) << to_string(dtype);
    EXPECT_TRUE(test::same_bits(gpu().host(among.dw[2]), alone.dw[0])) << to_string(dtype);
  }
}

// A launch takes 256 experts. Results that nobody wants stay as they are.
TEST_F(ExpertProductTwins, ManyExpertsAndResultsThatNobodyWants) {
  constexpr i64 kExperts = 300;
  std::vector<i32> of_experts(kExperts);
  for (size_t e = 0; e < of_experts.size(); e += 40) of_experts[e] = 2;
  const Tensor begins = begins_of(of_experts);
  const i64 M = begins.data<i32>()[kExperts];
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const Tensor x = test::random({M, 16}, dtype, 1), dy = test::random({M, 8}, dtype, 2);
    const ExpertWeights w = weights(kExperts, 8, 16, dtype);
    const Products want = multiplied(begins, x, w, dy, dtype);
    const auto [got, dw] = gpu().run([&] {
      const Tensor at = gpu()(begins), rows = gpu()(x), gradients = gpu()(dy);
      std::vector<Tensor> some(kExperts);
      for (size_t e = 0; e < some.size(); e += 3) some[e] = empty({8, 16}, dtype);
      kernels::multiply_over_expert_rows(at, gradients, rows, some, {});
      return std::pair(product_of(at, ExpertProduct::with_transpose, rows, each(w, gpu())), some);
    });
    test::expect_near(gpu().host(got), want.y, 2 * test::half_ulp(dtype), 1e-5, "y");
    for (size_t e = 0; e < dw.size(); e += 3) test::expect_near(gpu().host(dw[e]), want.dw[e], 2 * test::half_ulp(dtype), 1e-5, "dw");
  }
}

}  // namespace
}  // namespace spillway::expert_products_cuda_test
