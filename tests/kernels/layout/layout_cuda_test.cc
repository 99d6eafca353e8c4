// Compares copies between views, and reading and adding embedding rows, on a GPU with the CPU. Results equal the CPU's to the bit.
#include "kernels/layout/layout.h"

#include "kernels/sequence/embedding.h"
#include "tests/support/gpu.h"
#include "tests/support/gradient_check.h"
#include "tests/support/numbers.h"

namespace spillway::layout_cuda_test {
namespace {

constexpr DType kFloats[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

using View = std::function<Tensor(const Tensor&)>;
const View kSame = [](const Tensor& t) { return t; };

class LayoutTwins : public test::GpuTest {
 protected:
  // Copies the view `of_from` of one tensor into the view `of_to` of another on both devices. No other element may change.
  void check(const Shape& from_shape, const View& of_from, const Shape& to_shape, const View& of_to) {
    for (const DType dtype : kFloats) {
      const Tensor from = test::random(from_shape, dtype, 1), to = test::random(to_shape, dtype, 2), got = gpu()(to);
      kernels::copy_view(of_from(from), of_to(to));
      gpu().run([&] { kernels::copy_view(of_from(gpu()(from)), of_to(got)); });
      EXPECT_TRUE(test::same_bits(gpu().host(got), to)) << to_string(from_shape) << " " << to_string(dtype);
    }
  }
};

TEST_F(LayoutTwins, WholeTensors) {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{7}, Shape{1, 3, 1, 5}, Shape{64, 65}, Shape{2, 3, 2, 3, 2, 8}}) {
    check(shape, kSame, shape, kSame);
  }
}

// Copies between [B, T, H, D] and [B, H, T, D]. Rows of D elements stay
// together. They are copied in packs if D and the offsets of the views allow it.
TEST_F(LayoutTwins, HeadsThereAndBack) {
  for (const i64 width : {1, 3, 8}) {
    const View heads = [](const Tensor& t) { return t.permute({0, 2, 1, 3}); };
    check({2, 5, 3, width}, heads, {2, 3, 5, width}, kSame);
    check({2, 5, 3, width}, kSame, {2, 3, 5, width}, heads);
    check({2, 5, 3, width}, heads, {2, 5, 3, width}, heads);
  }
}

// Source and destination are contiguous along different axes. The shapes have less than a tile, whole tiles, and remainders.
TEST_F(LayoutTwins, Transposed) {
  const View turned = [](const Tensor& t) { return t.transpose(-1, -2); };
  for (const Shape& shape : {Shape{3, 50}, Shape{32, 32}, Shape{8, 8}, Shape{45, 70}, Shape{3, 2, 33, 17}}) {
    Shape other = shape;
    other.set(-1, shape[-2]), other.set(-2, shape[-1]);
    check(shape, turned, other, kSame);
    check(shape, kSame, other, turned);
  }
  check(
      {2, 9, 3, 10},
      [](const Tensor& t) {
        return t.permute({3, 0, 2, 1});
      },
      {10, 2, 3, 9}, kSame);
  check(
      {2, 9, 3, 10},
      [](const Tensor& t) {
        return t.permute({3, 0, 2, 1});
      },
      {12, 2, 3, 11}, [](const Tensor& t) { return t.slice(0, 1, 11).slice(3, 2, 11); });
}

TEST_F(LayoutTwins, Slices) {
  for (const i64 begin : {0, 1, 8}) {
    const View columns = [=](const Tensor& t) { return t.slice(1, begin, begin + 16); };
    check({9, 24}, columns, {9, 16}, kSame);
    check({9, 16}, kSame, {9, 25}, columns);
    check({9, 24}, columns, {9, 32}, columns);
    check(
        {33, 2}, [=](const Tensor& t) { return t.slice(0, begin, begin + 20).slice(1, 1, 2); }, {20, 1}, kSame);
  }
}

TEST_F(LayoutTwins, ZeroEverywhereAndNowhereElse) {
  for (const i64 n : {0, 1, 1000}) {
    const Tensor to = test::random({n + 2}, DType::bf16, 3), got = gpu()(to);
    kernels::fill_zero(to.slice(0, 1, n + 1));
    gpu().run([&] { kernels::fill_zero(got.slice(0, 1, n + 1)); });
    EXPECT_TRUE(test::same_bits(gpu().host(got), to));
  }
}

class EmbeddingTwins : public test::GpuTest {
 protected:
  // Compares embedding rows and their gradient with the CPU. Token ids are drawn from [0, spread).
  void check(i64 tokens, i64 vocabulary, i64 columns, i64 spread) {
    for (const DType dtype : kFloats) {
      SCOPED_TRACE(to_string(Shape{tokens, vocabulary, columns}) + " " + std::string(to_string(dtype)));
      const Tensor table = test::random({vocabulary, columns}, dtype, 1), dout = test::random({tokens, columns}, dtype, 2);
      const Tensor ids = empty({tokens}, DType::int32), out = empty({tokens, columns}, dtype),
                   dtable = empty({vocabulary, columns}, wide_dtype(dtype));
      for (i64 n = 0; n < tokens; ++n) ids.data<i32>()[n] = static_cast<i32>((n * 7919 + n * n % 31) % spread);
      kernels::embedding(ids, table, out);
      kernels::embedding_gradient(ids, dout, -1, dtable);
      const Tensor got = gpu().empty(out.shape(), dtype), got_table = gpu()(test::random(dtable.shape(), dtable.dtype(), 3));
      gpu().run([&] {
        kernels::embedding(gpu()(ids), gpu()(table), got);
        kernels::embedding_gradient(gpu()(ids), gpu()(dout), -1, got_table);
      });
      if (tokens > 0) {
        EXPECT_TRUE(test::same_bits(gpu().host(got), out));
      }
      EXPECT_TRUE(test::same_bits(gpu().host(got_table), dtable));
    }
  }
};

TEST_F(EmbeddingTwins, RowsOfAnyWidth) {
  check(1, 1, 1, 1);
  check(5, 33, 3, 33);
  check(50, 70, 40, 70);
  check(9, 40, 520, 40);  // more columns than one block of f32 or f64 handles
}

// The gradient of a frequent token sums many chunks, in one row or in many rows of one block, in the order of the tokens.
TEST_F(EmbeddingTwins, FrequentTokens) {
  check(1500, 3, 2, 3);
  check(1025, 40, 8, 1);
}

TEST_F(EmbeddingTwins, NoTokensAreAGradientOfZero) { check(0, 35, 8, 1); }

TEST_F(EmbeddingTwins, ARowOutsideTheTableIsNotANumberAndAnErrorOfTheNextWait) {
  for (const DType dtype : kFloats) {
    const Tensor ids = test::ints({2, -1, 3, 0, 1 << 30}, {5}), table = test::random({3, 16}, dtype, 1),
                 dout = test::random({5, 16}, dtype, 2);
    const Tensor got = gpu().empty({5, 16}, dtype), dtable = gpu().empty({3, 16}, wide_dtype(dtype));
    const Tensor there[] = {gpu()(ids), gpu()(table), gpu()(dout)};
    gpu().run([&] {
      kernels::embedding(there[0], there[1], got);
      kernels::embedding_gradient(there[0], there[2], -1, dtable);
    });
    EXPECT_TRUE(test::refusal([&] { gpu().host(got); }).starts_with("[embedding] expected an index in [0, 3), got "));
    const Tensor host = gpu().host(got), sums = gpu().host(dtable);
    for (i64 i = 0; i < 16; ++i) {
      EXPECT_EQ(test::at(host, i), test::at(table, 2 * 16 + i));
      EXPECT_EQ(test::at(host, 3 * 16 + i), test::at(table, i));
      for (const i64 row : {1, 2, 4}) EXPECT_TRUE(std::isnan(test::at(host, row * 16 + i)));
      EXPECT_EQ(test::at(sums, 16 + i), 0);
    }
  }
}

TEST_F(LayoutTwins, TrianglesAndWidths) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    const Tensor x = test::random({3, 17, 23}, dtype, 1), want = empty(x.shape(), dtype), got = gpu().empty(x.shape(), dtype);
    for (const bool lower : {false, true}) {
      for (const i64 diagonal : {-30, -2, 0, 5, 30}) {
        kernels::triangle(x, lower, diagonal, want);
        gpu().run([&] { kernels::triangle(gpu()(x), lower, diagonal, got); });
        EXPECT_TRUE(test::same_bits(gpu().host(got), want)) << lower << " " << diagonal;
      }
    }
  }
  const Tensor bytes = empty({5, 9}, DType::uint8), want = empty({9, 5}, DType::uint8), got = gpu().empty({9, 5}, DType::uint8);
  for (i64 i = 0; i < 45; ++i) bytes.data<u8>()[i] = static_cast<u8>(i);
  kernels::copy_view(bytes.transpose(0, 1), want);
  gpu().run([&] { kernels::copy_view(gpu()(bytes).transpose(0, 1), got); });
  EXPECT_TRUE(test::same_bits(gpu().host(got), want));
}

}  // namespace
}  // namespace spillway::layout_cuda_test
