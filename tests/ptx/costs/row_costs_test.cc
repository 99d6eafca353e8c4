// Holds the memory accesses of kernels that read and write rows to limits, from counts of their PTX. Such kernels take as long as the GPU's
// memory does, which moves sectors of 32 bytes: those beside what the lanes of a warp ask for are wasted time.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/elementwise/dropout.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/experts/expert_rows.h"
#include "kernels/experts/router.h"
#include "kernels/losses/cross_entropy.h"
#include "kernels/rows/norm.h"
#include "kernels/rows/softmax.h"
#include "kernels/sequence/embedding.h"
#include "kernels/sequence/rope.h"
#include "ptx/counters.h"
#include "tests/support/gpu.h"
#include "tests/support/numbers.h"

namespace spillway::test::row_costs_test {
namespace {

using ptx::Counters;

constexpr double kMost = 1.25;
constexpr i64 kRows = 64, kColumns = 1024, kExperts = 32, kChosen = 4;

// Returns the sectors of all loads and stores of a kernel, in relation to those that the bytes asked for fill.
double sectors_to_ideal(const Counters& c) {
  const auto bytes = static_cast<double>(c.global_load_bytes + c.global_store_bytes);
  return 32 * static_cast<double>(c.global_load_sectors + c.global_store_sectors) / bytes;
}

class RowCosts : public GpuTest {
 protected:
  Tensor tensor(const Shape& shape, DType dtype = DType::bf16) { return gpu()(random(shape, dtype, 1)); }
  Tensor numbers(i64 count, const std::function<i64(i64)>& of, const Shape& shape) {
    std::vector<i32> all;
    for (i64 i = 0; i < count; ++i) all.push_back(static_cast<i32>(of(i)));
    return gpu()(ints(all, shape));
  }
  Tensor room(const Shape& shape, DType dtype = DType::bf16) { return gpu().empty(shape, dtype); }

  std::map<std::string, Counters> counted(const std::function<void()>& work) {
    ptx::count_anew();
    gpu().run(work);
    return ptx::counted();
  }
  // Kernels whose name contains `other` are held to `most` instead.
  void expect_coalesced(const std::function<void()>& work, const std::string& other = "nothing else", double most = 0) {
    const auto all = counted(work);
    EXPECT_FALSE(all.empty());
    for (const auto& [kernel, c] : all) EXPECT_LE(sectors_to_ideal(c), kernel.find(other) == std::string::npos ? kMost : most) << kernel;
  }
};

// The limit is one that a kernel can break: softmax along an axis that is not the last has lanes whose elements lie apart. A warp then
// takes one element from each of 32 lanes, and with two such lanes a row, a sector has as many bytes that nobody asked for.
TEST_F(RowCosts, OfAColumnAreBeyondTheLimit) {
  const Tensor x = tensor({2, kColumns, 2}), kept = room({2, 2, 2}, DType::f32);
  double worst = 0;
  for (const auto& [kernel, c] : counted([&] { kernels::softmax_statistics(x, kernels::axis_of(x.shape(), 1), kept); }))
    worst = std::max(worst, sectors_to_ideal(c));
  EXPECT_GT(worst, kMost);
}

TEST_F(RowCosts, OfNorms) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const Shape shape{kRows, kColumns}, row{kColumns};
    const Tensor x = tensor(shape, dtype), gamma = tensor(row, dtype), beta = tensor(row, dtype), dy = tensor(shape, dtype);
    const Tensor y = room(shape, dtype), statistics = room({kRows, 2}, DType::f32), dx = room(shape, dtype);
    const Tensor dgamma = room(row, DType::f32), dbeta = room(row, DType::f32);
    const i64 bytes = gpu().run([&] { return kernels::norm_gradient_workspace_bytes(kRows, kColumns, dtype); });
    const Tensor workspace = room({bytes}, DType::uint8);
    expect_coalesced([&] { kernels::norm(x, gamma, beta, 1e-5, y, statistics); });
    expect_coalesced([&] { kernels::norm_gradient(x, gamma, statistics, dy, true, {}, dx, dgamma, dbeta, workspace); });
    expect_coalesced([&] { kernels::norm(x, gamma, {}, 1e-5, y, statistics); });
    expect_coalesced([&] { kernels::norm_gradient(x, gamma, statistics, dy, false, {}, dx, dgamma, {}, workspace); });
  }
}

TEST_F(RowCosts, OfSoftmax) {
  const Tensor x = tensor({kRows, kColumns}), dy = tensor({kRows, kColumns}), y = room({kRows, kColumns});
  const Tensor kept = room({kRows, 2, 1}, DType::f32);
  const kernels::Axis axis = kernels::axis_of(x.shape(), 1);
  expect_coalesced([&] {
    kernels::softmax_statistics(x, axis, kept);
    kernels::softmax(kernels::Softmax::plain, x, axis, kept, y);
    kernels::softmax_gradient(kernels::Softmax::plain, x, axis, kept, dy, y);
  });
}

TEST_F(RowCosts, OfCrossEntropy) {
  const Tensor logits = tensor({16, 4096}), targets = numbers(16, [](i64 i) { return i * 200; }, {16});
  const Tensor statistics = room({16, 2}, DType::f32), loss = room({16}, DType::f32), dlogits = room({16, 4096});
  expect_coalesced([&] {
    kernels::cross_entropy(logits, targets, statistics, loss);
    kernels::cross_entropy_gradient(logits, targets, statistics, 0.5, dlogits);
  });
}

TEST_F(RowCosts, OfRotationsAndEmbeddings) {
  const Tensor x = tensor({1, kRows, 4, 128}), positions = numbers(kRows, [](i64 i) { return i; }, {1, kRows});
  const std::vector<double> frequencies(64, 0.01);
  expect_coalesced([&] { kernels::rope(x, positions, frequencies, 1, false, x); });
  const Tensor table = tensor({128, kColumns}), ids = numbers(kRows, [](i64 i) { return i * 37 % 128; }, {kRows});
  const Tensor out = room({kRows, kColumns});
  expect_coalesced([&] { kernels::embedding(ids, table, out); });
}

TEST_F(RowCosts, OfElementwiseKernels) {
  const Shape shape{kRows, kColumns};
  const Tensor a = tensor(shape), b = tensor(shape), c = tensor(shape), y = room(shape), z = room(shape);
  expect_coalesced([&] { kernels::unary(kernels::Unary::gelu_tanh, a, y); });
  expect_coalesced([&] { kernels::glu(kernels::Glu::silu, a, b, y); });
  expect_coalesced([&] { kernels::glu_gradient(kernels::Glu::silu, a, b, c, y, z); });
  expect_coalesced([&] { kernels::dropout(a, 0.1, RandomKey{3}, 0, y); });
}

TEST_F(RowCosts, OfRoutersAndTheRowsOfExperts) {
  const Tensor logits = tensor({kRows, kExperts}), probabilities = room({kRows, kExperts}, DType::f32);
  const Tensor experts = room({kRows, kChosen}, DType::int32), weights = room({kRows, kChosen}, DType::f32);
  expect_coalesced([&] { kernels::router(logits, {.normalised = true}, probabilities, experts, weights); });
  const Tensor begins = room({kExperts + 1}, DType::int32), choice = room({kRows * kChosen}, DType::int32);
  const Tensor row = room({kRows, kChosen}, DType::int32);
  const i64 bytes = gpu().run([&] { return kernels::sort_by_expert_workspace_bytes(kRows * kChosen, kExperts); });
  const Tensor workspace = room({bytes}, DType::uint8);
  gpu().run([&] { kernels::sort_by_expert(experts, begins, choice, row, workspace); });
  const Tensor from = tensor({kRows, kColumns}), to = room({kRows * kChosen, kColumns}), sums = room({kRows, kColumns});
  expect_coalesced([&] { kernels::gather_rows(from, choice, weights, to); });
  expect_coalesced([&] { kernels::sum_rows(to, row, weights, sums); });
}

// The choices of several stretches are counted in shared memory. place_choices() writes each choice to the place of its row: of 32 choices
// that a warp places, few have the same expert and thus adjacent rows. Of the 12 bytes that it moves for a choice, 4 take up to a sector.
TEST_F(RowCosts, OfSortingByExpert) {
  constexpr i64 kTokens = 1024;
  const Tensor logits = tensor({kTokens, kExperts}), probabilities = room({kTokens, kExperts}, DType::f32);
  const Tensor experts = room({kTokens, kChosen}, DType::int32), weights = room({kTokens, kChosen}, DType::f32);
  gpu().run([&] { kernels::router(logits, {.normalised = true}, probabilities, experts, weights); });
  const Tensor begins = room({kExperts + 1}, DType::int32), choice = room({kTokens * kChosen}, DType::int32);
  const Tensor row = room({kTokens, kChosen}, DType::int32);
  const i64 bytes = gpu().run([&] { return kernels::sort_by_expert_workspace_bytes(kTokens * kChosen, kExperts); });
  const Tensor workspace = room({bytes}, DType::uint8);
  expect_coalesced([&] { kernels::sort_by_expert(experts, begins, choice, row, workspace); }, "place_choices", 2.5);
}

}  // namespace
}  // namespace spillway::test::row_costs_test
