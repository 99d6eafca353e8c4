// Compares attention of a few queries at the end, as in generation, with attention of many queries. The two algorithms read keys and values
// in different ways. The rows of their results must be bitwise the same.
#include "kernels/sequence/attention.h"
#include "tests/support/numbers.h"

namespace spillway::few_queries_test {
namespace {

using kernels::AttentionMask;

constexpr i64 kBatch = 2, kHeads = 4, kKvHeads = 2, kMany = 37;

struct Result {
  Tensor out, lse;
};

Result attend(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask) {
  const Result result{empty(q.shape(), q.dtype()), empty({q.size(0), q.size(2), q.size(1)}, wide_dtype(q.dtype()))};
  const i64 bytes = kernels::attention_workspace_bytes(q.shape(), k.shape(), q.dtype());
  kernels::attention(q, k, v, mask, result.out, result.lse, empty({bytes}, DType::uint8));
  return result;
}

// Counts elements of `few` that differ from the last rows of `many`. Rows are counted along `rows_axis`, the axis of positions: 1 for
// tensors [B, T, H, D], 2 for [B, H, T].
i64 different(const Tensor& few, const Tensor& many, int rows_axis) {
  const i64 rows = few.size(rows_axis), all = many.size(rows_axis), inner = few.stride(rows_axis), bytes = size_of(few.dtype());
  i64 count = 0;
  for (i64 i = 0; i < few.elems() / (rows * inner); ++i) {
    const auto* a = few.raw() + i * rows * inner * bytes;
    const auto* b = many.raw() + (i * all + all - rows) * inner * bytes;
    for (i64 j = 0; j < rows * inner; ++j) count += std::memcmp(a + j * bytes, b + j * bytes, static_cast<size_t>(bytes)) != 0;
  }
  return count;
}

// Returns keys or values that are a view of a longer tensor, as those in a key/value cache are.
Tensor cached(i64 keys, i64 width, DType dtype, u64 seed) {
  return test::random({kBatch, keys + 9, kKvHeads, width}, dtype, seed).slice(1, 0, keys);
}

void expect_the_bits_of_many(i64 keys, i64 width, DType dtype, const AttentionMask& mask) {
  SCOPED_TRACE(std::string(to_string(dtype)) + ", " + std::to_string(keys) + " keys of " + std::to_string(width) + ", window " +
               std::to_string(mask.window));
  const Tensor q = test::random({kBatch, kMany, kHeads, width}, dtype, 1), k = cached(keys, width, dtype, 2),
               v = cached(keys, width, dtype, 3);
  const Result many = attend(q, k, v, mask);
  for (i64 queries = 1; queries <= 5; ++queries) {
    const Result few = attend(q.slice(1, kMany - queries, kMany), k, v, mask);
    EXPECT_EQ(different(few.out, many.out, 1), 0) << queries << " queries";
    EXPECT_EQ(different(few.lse, many.lse, 2), 0) << queries << " queries";
  }
}

class FewQueries : public ::testing::TestWithParam<DType> {};

TEST_P(FewQueries, HaveTheBitsOfMany) {
  for (const auto& [keys, width] : std::vector<std::pair<i64, i64>>{{37, 32}, {70, 33}, {300, 64}, {1100, 40}, {90, 24}}) {
    AttentionMask mask{.scale = 0.3};
    expect_the_bits_of_many(keys, width, GetParam(), mask);
    mask.causal = false;
    expect_the_bits_of_many(keys, width, GetParam(), mask);
  }
}

TEST_P(FewQueries, HaveTheBitsOfManyBehindAnyMask) {
  const i64 keys = 600;
  expect_the_bits_of_many(keys, 64, GetParam(), {.scale = 0.3, .softcap = 5});
  for (const i64 window : {20, 100, 320}) expect_the_bits_of_many(keys, 64, GetParam(), {.scale = 0.3, .window = window});
  for (const i64 begin : {1, 290, 598}) {
    AttentionMask mask{.scale = 0.3};
    mask.positions_BT = empty({kBatch, keys}, DType::int32);
    for (i64 i = 0; i < kBatch * keys; ++i) {
      const i64 at = i % keys, second = i < keys ? begin : 5;  // `second` is where the second document of each row begins
      mask.positions_BT.data<i32>()[i] = static_cast<i32>(at < second ? at : at - second);
    }
    expect_the_bits_of_many(keys, 64, GetParam(), mask);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, FewQueries, ::testing::Values(DType::f32, DType::f64, DType::bf16, DType::f16),
                         [](const auto& tested) { return std::string(to_string(tested.param)); });

TEST(FewQueriesCompared, AnotherValueWouldBeSeen) {
  const Tensor q = test::random({kBatch, kMany, kHeads, 32}, DType::f32, 1), k = cached(80, 32, DType::f32, 2),
               v = cached(80, 32, DType::f32, 3);
  const Result few = attend(q.slice(1, kMany - 2, kMany), k, v, {.scale = 0.3});
  k.data<float>()[7] += 0.01F;
  const Result many = attend(q, k, v, {.scale = 0.3});
  EXPECT_GT(different(few.out, many.out, 1), 0);
  EXPECT_GT(different(few.lse, many.lse, 2), 0);
}

}  // namespace
}  // namespace spillway::few_queries_test
