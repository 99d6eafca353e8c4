// Compares matrix products on a GPU with fp64, and tests the message if cuBLASLt is missing.
#include <cstdlib>
#include <tuple>

#include "base/error.h"
#include "kernels/layout/layout.h"
#include "kernels/products/blas_lt_cuda.h"
#include "kernels/products/matmul_plan_cuda.h"
#include "tests/kernels/products/support_matmul.h"
#include "tests/support/gpu.h"

namespace spillway::matmul_cuda_test {
namespace {

using kernels::Store;
using test::Extents;
using test::kAllTypes;
using test::Types;
using test::view_in;
using test::whole_of;

// Returns the error of one addition. Tensor cores (bf16, f16) truncate instead of rounding (Fasi et al., PeerJ Comp. Science 7:e330, 2021).
double error_of_an_addition(const Types& types) { return is_half(types.in) ? 0x1p-23 : test::half_ulp(wide_dtype(types.in)); }

class MatmulTwins : public test::GpuTest {
 protected:
  void multiply(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out, Store store = Store::replace,
                const Tf32& tf32 = {}) {
    gpu().run([&] {
      Stream stream = Stream::current();
      stream.tf32 = tf32;
      const StreamScope scope(stream);
      const i64 bytes = kernels::matmul_workspace_bytes(out.size(0), out.size(1), a.size(1), a.dtype(), out.dtype());
      kernels::matmul(a, b, bias, out, empty({bytes}, DType::uint8), store);
    });
  }

  // Checks a product. Bits of `layout`: 1: A transposed, 2: B transposed, 4: all matrices in wider rows, 8: a bias, 16: adds to the output.
  void check(const Extents& e, const Types& types, int layout) {
    SCOPED_TRACE(test::to_string(e, types) + ", layout " + std::to_string(layout));
    const bool a_flip = layout & 1, b_flip = layout & 2, padded = layout & 4, adds = layout & 16;
    const Tensor a = whole_of(e.m, e.k, a_flip, padded, types.in, 1), b = whole_of(e.k, e.n, b_flip, padded, types.in, 2);
    const Tensor bias = layout & 8 ? test::random({e.n}, types.in, 3) : Tensor();
    const Tensor before = whole_of(e.m, e.n, false, padded, types.out, 4), out = gpu()(before);
    multiply(view_in(gpu()(a), e.m, e.k, a_flip), view_in(gpu()(b), e.k, e.n, b_flip), gpu()(bias), view_in(out, e.m, e.n, false),
             adds ? Store::add : Store::replace);
    const Tensor got = gpu().host(out);
    test::expect_product(view_in(a, e.m, e.k, a_flip), view_in(b, e.k, e.n, b_flip), bias, view_in(got, e.m, e.n, false),
                         error_of_an_addition(types), adds ? before : Tensor());
    if (padded) expect_same(got.slice(1, e.n, e.n + 5), before.slice(1, e.n, e.n + 5));
  }

  static void expect_same(const Tensor& got, const Tensor& want) { EXPECT_EQ(test::plain(got), test::plain(want)) << "beside the result"; }
};

// Tests small matrices, and numbers of rows and columns near multiples of 16 (a kernel loads 16 at once) and near 128 (the size of a tile).
TEST_F(MatmulTwins, OddShapesTransposesStridesAndBias) {
  const std::vector<Extents> shapes{{1, 1, 1}, {1, 1, 70}, {3, 5, 2}, {1, 97, 33}, {97, 1, 33}, {16, 32, 8}, {47, 49, 48}, {129, 31, 65}};
  for (const Extents& e : shapes) {
    for (const Types& types : kAllTypes) {
      for (int layout = 0; layout < 16; ++layout) check(e, types, layout);
    }
  }
}

TEST_F(MatmulTwins, LongInnerExtent) {
  for (const Types& types : kAllTypes) {
    check({17, 9, 4095}, types, 0);
    check({8, 16, 4096}, types, 3 | 4 | 8);
  }
}

TEST_F(MatmulTwins, AddsToWhatIsThere) {
  for (const Types& types : {kAllTypes[0], kAllTypes[1], kAllTypes[2], kAllTypes[4]}) {
    check({20, 70, 300}, types, 16);
    check({33, 7, 12}, types, 16 | 8 | 4 | 1);
  }
  const Tensor one = gpu()(test::random({2, 2}, DType::bf16, 1));
  EXPECT_THROW(multiply(one, one, {}, gpu().empty({2, 2}, DType::bf16), Store::add), Error) << "it would be rounded twice";
}

// Multiplies parts of matrices that begin at any row and column, so addresses have every alignment that an element can have.
TEST_F(MatmulTwins, PartsOfMatrices) {
  for (const Types& types : kAllTypes) {
    const Tensor a = test::random({40, 50}, types.in, 1), b = test::random({50, 60}, types.in, 2), bias = test::random({60}, types.in, 3);
    const Tensor ga = gpu()(a), gb = gpu()(b), gbias = gpu()(bias), out = gpu().empty({40, 60}, types.out);
    for (const i64 from : {1, 2, 3, 4, 8}) {
      SCOPED_TRACE(from);
      const auto part = [&](const Tensor& x) { return x.slice(0, from, 40).slice(1, from, 40); };
      multiply(part(ga), part(gb), gbias.slice(0, from, 40), part(out));
      test::expect_product(part(a), part(b), bias.slice(0, from, 40), part(gpu().host(out)), error_of_an_addition(types));
    }
  }
}

// A matrix with one row or one column has a stride that the product must ignore.
TEST_F(MatmulTwins, OneColumnOfWiderRows) {
  for (const Types& types : kAllTypes) {
    const Tensor a = test::random({30, 7}, types.in, 1), b = test::random({20, 9}, types.in, 2), out = test::random({30, 4}, types.out, 3);
    const auto column = [](const Tensor& x) { return x.slice(1, 3, 4); };
    const Tensor ga = gpu()(a), gb = gpu()(b), thin = gpu()(out), outer = gpu().empty({30, 20}, types.out);
    multiply(column(ga), column(gb).transpose(0, 1), {}, outer);  // multiplies matrices of the shapes [30, 1] and [1, 20]
    test::expect_product(column(a), column(b).transpose(0, 1), {}, gpu().host(outer), error_of_an_addition(types));
    multiply(ga, ga.slice(0, 0, 1).transpose(0, 1), {}, column(thin));  // multiplies matrices of the shapes [30, 7] and [7, 1]
    test::expect_product(a, a.slice(0, 0, 1).transpose(0, 1), {}, column(gpu().host(thin)), error_of_an_addition(types));
  }
}

TEST_F(MatmulTwins, NoRowsOrNoColumns) {
  for (const auto& [m, n] : {std::pair<i64, i64>{0, 3}, {3, 0}}) {
    EXPECT_NO_THROW(multiply(gpu().empty({m, 4}, DType::f32), gpu().empty({4, n}, DType::f32), {}, gpu().empty({m, n}, DType::f32)));
  }
  EXPECT_THROW(multiply(gpu().empty({2, 0}, DType::f32), gpu().empty({0, 2}, DType::f32), {}, gpu().empty({2, 2}, DType::f32)), Error);
}

// If cuBLASLt splits the sum over k, partial sums must not be rounded to bf16,
// which would lose the 2^-4 beside 2^10. In fp32 the sum is exact in any order.
TEST_F(MatmulTwins, SumsOfBf16StayWide) {
  for (const i64 k : {64, 4096, 1 << 16}) {
    const Tensor a = test::as(DType::bf16, zeros({1, k}, DType::f32)), b = test::as(DType::bf16, zeros({k, 1}, DType::f32));
    for (const auto& [p, x] : {std::pair<i64, float>{2, 1024.F}, {9, 0x1p-4F}, {k - 1, -1024.F}}) {
      a.data<BFloat16>()[p] = narrow<BFloat16>(x);
      b.data<BFloat16>()[p] = narrow<BFloat16>(1);
    }
    const Tensor out = gpu().empty({1, 1}, DType::bf16);
    multiply(gpu()(a), gpu()(b), {}, out);
    EXPECT_EQ(test::at(gpu().host(out), 0), 0x1p-4) << k;
  }
}

// With TF32, operands have 10 mantissa bits, truncated or rounded, so each is off by less than 2^-10 of itself. All else stays exact.
TEST_F(MatmulTwins, Tf32WhereItIsAskedFor) {
  const Extents e{40, 24, 300};
  const auto product = [&](DType dtype, const Tf32& tf32) {
    const Tensor a = test::random({e.m, e.k}, dtype, 5), b = test::random({e.k, e.n}, dtype, 6),
                 out = gpu().empty({e.m, e.n}, wide_dtype(dtype));
    const Tensor ga = gpu()(a), gb = gpu()(b);
    multiply(ga, gb, {}, out, Store::replace, tf32);
    return std::tuple(a, b, gpu().host(out));
  };
  const auto [a, b, rounded] = product(DType::f32, {.matmul = true});
  test::expect_product(a, b, {}, rounded, 2.1 * 0x1p-10 / static_cast<double>(e.k) + 0x1p-23);
  const Tensor exact = std::get<2>(product(DType::f32, {}));
  EXPECT_NE(test::plain(rounded), test::plain(exact));
  EXPECT_EQ(test::plain(std::get<2>(product(DType::f32, {.conv = true}))), test::plain(exact)) << "convolutions have a switch of their own";
  EXPECT_EQ(test::plain(std::get<2>(product(DType::bf16, {.matmul = true}))), test::plain(std::get<2>(product(DType::bf16, {}))));
}

TEST_F(MatmulTwins, SameBitsWheneverAndWherever) {
  for (const Types& types : kAllTypes) {
    const Tensor a = test::random({60, 515}, types.in, 1), b = test::random({515, 33}, types.in, 2), bias = test::random({33}, types.in, 3);
    const Tensor first = gpu().empty({60, 33}, types.out);
    multiply(gpu()(a), gpu()(b), gpu()(bias), first);
    const Tensor elsewhere = gpu().empty({1000}, DType::f32), second = gpu().empty({60, 33}, types.out);
    multiply(gpu()(a), gpu()(b), gpu()(bias), second);
    EXPECT_TRUE(test::same_bits(gpu().host(first), gpu().host(second)));
  }
}

// Computes the product of two matrices twice. First both begin at a multiple of 256 bytes; then, with the same row strides, one begins
// behind a row and the other beside another matrix. The two results must be bitwise equal.
TEST_F(MatmulTwins, SameBitsAtAnyAlignmentOfALayout) {
  for (const Types& types : kAllTypes) {
    const i64 m = 20, k = 330, n = 66;  // the sizes of rows are not multiples of 16 bytes
    const Tensor a = test::random({m, k}, types.in, 1), b = test::random({k, n}, types.in, 2);
    const auto product = [&](i64 row, i64 column) {
      const Tensor tall = gpu().empty({m + 1, k}, types.in), wide = gpu().empty({k, 3 * n}, types.in), out = gpu().empty({m, n}, types.out);
      const Tensor first = tall.slice(0, row, row + m), second = wide.slice(1, column, column + n);
      gpu().run([&] {
        kernels::copy_view(gpu()(a), first);
        kernels::copy_view(gpu()(b), second);
      });
      multiply(first, second, {}, out);
      return gpu().host(out);
    };
    EXPECT_TRUE(test::same_bits(product(0, 0), product(1, n)));
  }
}

TEST_F(MatmulTwins, RefusesWorkspacesThatDoNotDo) {
  const Tensor a = gpu()(test::random({4, 4}, DType::f32, 1)), out = gpu().empty({4, 4}, DType::f32);
  const Tensor large = gpu().empty({2 * kMiB}, DType::uint8), small = gpu().empty({100}, DType::uint8);
  gpu().run([&] {
    EXPECT_THROW(kernels::matmul(a, a, {}, out, small), Error);
    EXPECT_THROW(kernels::matmul(a, a, {}, out, large.slice(0, 16, 2 * kMiB)), Error) << "not at a multiple of 256 bytes";
  });
}

kernels::MatmulKey key_of(const Extents& e, const Types& types) {
  return {0, types.in, types.out, {e.n, e.k, e.n, false, 16}, {e.k, e.m, e.k, false, 16}, {e.n, e.m, e.n, false, 16}, 0, kMiB};
}

TEST_F(MatmulTwins, APlanIsMadeOnce) {
  const kernels::MatmulPlan* first = &kernels::matmul_plan(key_of({5, 6, 7}, kAllTypes[0]));
  EXPECT_NE(first, &kernels::matmul_plan(key_of({5, 6, 8}, kAllTypes[0])));
  EXPECT_NE(first, &kernels::matmul_plan(key_of({5, 6, 7}, kAllTypes[1])));
  EXPECT_EQ(first, &kernels::matmul_plan(key_of({5, 6, 7}, kAllTypes[0])));
}

template <class Work>
Error error_of(Work work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorCode::bug, "nothing was thrown");
}
bool mentions(const Error& error, const std::string& words) { return std::string(error.what()).find(words) != std::string::npos; }

// The emulated cuBLASLt refuses products with a bias, products with a workspace, all products, or some products. Other kernels must then
// compute them. Plans are cached, so each case has other shapes.
TEST_F(MatmulTwins, WhereTheLibraryKnowsNoWayThereIsAnother) {
  if (!std::getenv("SPILLWAY_EMULATED_GPUS")) GTEST_SKIP() << "needs emulated GPUs";
  i64 k = 101;
  for (const char* cannot : {"bias", "workspace", "all", "some"}) {
    ::setenv("SPILLWAY_EMULATED_BLAS", cannot, 1);
    for (const Types& types : kAllTypes) {
      for (int layout = 0; layout < 32; ++layout) {
        if ((layout & 16) != 0 && is_half(types.out)) continue;
        check({13, 7, k}, types, layout);
        check({1, 1, k}, types, layout);
      }
    }
    k += 2;
  }
  ::unsetenv("SPILLWAY_EMULATED_BLAS");
}

TEST_F(MatmulTwins, SaysWhatTheLibraryCannotDo) {
  const Error error = error_of([] { kernels::matmul_plan(key_of({5, 6, 7}, {DType::f32, DType::f64})); });
  EXPECT_EQ(error.code(), ErrorCode::io);
  EXPECT_TRUE(mentions(error, "got CUBLAS_STATUS_")) << error.what();
  EXPECT_TRUE(mentions(error, "A f32 6 x 7")) << error.what();
}

TEST(BlasLt, SaysWhatIsMissingAndWhereItComesFrom) {
  const Error none = error_of([] { kernels::open_blas_lt({"libspillway_no_such.so.13", "/no/such/folder/libcublasLt.so.13"}); });
  EXPECT_EQ(none.code(), ErrorCode::usage);
  EXPECT_TRUE(mentions(none, "libspillway_no_such.so.13: cannot open shared object file")) << none.what();
  EXPECT_TRUE(mentions(none, "/no/such/folder/libcublasLt.so.13: file not found")) << none.what();
  EXPECT_TRUE(mentions(none, "install cuBLAS")) << none.what();
  EXPECT_FALSE(mentions(none, "\n")) << none.what();

  const Error other = error_of([] { kernels::open_blas_lt({"libm.so.6"}); });
  EXPECT_EQ(other.code(), ErrorCode::usage);
  EXPECT_TRUE(mentions(other, "expected cublasLtGetStatusName in libm.so.6")) << other.what();
}

TEST(BlasLt, NamesTheCallThatFailed) {
  EXPECT_NO_THROW(kernels::blas_lt_check(CUBLAS_STATUS_SUCCESS, "cublasLtMatmul"));
  const Error error = error_of([] {
    try {
      kernels::blas_lt();
    } catch (const Error&) {
      return;  // cuBLASLt is not installed, so the rest cannot be tested
    }
    kernels::blas_lt_check(CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmul");
  });
  if (error.code() == ErrorCode::bug) GTEST_SKIP() << "cuBLASLt is not installed";
  EXPECT_EQ(error.code(), ErrorCode::io);
  EXPECT_TRUE(mentions(error, "cublasLtMatmul to succeed, got CUBLAS_STATUS_NOT_SUPPORTED (15)")) << error.what();
}

}  // namespace
}  // namespace spillway::matmul_cuda_test
