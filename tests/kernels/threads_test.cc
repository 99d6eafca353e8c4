// Tests one law for all kernels that split work into tasks: they give bitwise the same results with 1, 2 and 3 threads.
#include "kernels/elementwise/elementwise.h"
#include "kernels/images/batch_norm.h"
#include "kernels/images/conv.h"
#include "kernels/images/pool.h"
#include "kernels/losses/cross_entropy.h"
#include "kernels/rows/norm.h"
#include "kernels/rows/reduce.h"
#include "kernels/sequence/attention.h"
#include "kernels/sequence/embedding.h"
#include "kernels/sequence/rope.h"
#include "tests/support/numbers.h"

namespace spillway::threads_test {
namespace {

// Checks that the tensors that `work` returns are bitwise the same for any number of threads.
void expect_same_bits(const std::function<std::vector<Tensor>()>& work) {
  const std::vector<Tensor> alone = work();
  for (int threads = 2; threads <= 3; ++threads) {
    test::with_threads(threads, [&] {
      const std::vector<Tensor> together = work();
      for (size_t i = 0; i < alone.size(); ++i)
        EXPECT_TRUE(test::same_bits(alone[i], together[i])) << "result " << i << ", " << threads << " threads";
    });
  }
}

Tensor bytes(i64 n) { return empty({n}, DType::uint8); }

class SameBits : public ::testing::TestWithParam<DType> {
 protected:
  DType dtype = GetParam(), wide = wide_dtype(dtype);
};

TEST_P(SameBits, Attention) {
  for (const bool causal : {true, false}) {
    expect_same_bits([=, this] {
      const Shape shape{3, 70, 4, 24}, kv_shape{3, 70, 2, 24};
      const Tensor q = test::random(shape, dtype, 1), k = test::random(kv_shape, dtype, 2), v = test::random(kv_shape, dtype, 3);
      const Tensor out = empty(shape, dtype), lse = empty({3, 4, 70}, wide), dout = test::random(shape, dtype, 4);
      const Tensor dq = empty(shape, dtype), dk = empty(kv_shape, dtype), dv = empty(kv_shape, dtype);
      const kernels::AttentionMask mask{0.2, causal, 0.1, RandomKey{5}, 7};
      kernels::attention(q, k, v, mask, out, lse, bytes(kernels::attention_workspace_bytes(shape, kv_shape, dtype)));
      kernels::attention_gradient(q, k, v, out, lse, dout, mask, dq, dk, dv,
                                  bytes(kernels::attention_gradient_workspace_bytes(shape, kv_shape, dtype)));
      return std::vector<Tensor>{out, lse, dq, dk, dv};
    });
  }
}

TEST_P(SameBits, Norms) {
  expect_same_bits([this] {
    const Tensor x = test::random({70, 100}, dtype, 1), gamma = test::random({100}, dtype, 2), beta = test::random({100}, dtype, 3);
    const Tensor dy = test::random({70, 100}, dtype, 4), y = empty(x.shape(), dtype), statistics = empty({70, 2}, wide);
    const Tensor dx = empty(x.shape(), dtype), dgamma = empty({100}, wide), dbeta = empty({100}, wide);
    kernels::norm(x, gamma, beta, 1e-5, y, statistics);
    kernels::norm_gradient(x, gamma, statistics, dy, true, {}, dx, dgamma, dbeta,
                           bytes(kernels::norm_gradient_workspace_bytes(70, 100, dtype)));
    return std::vector<Tensor>{y, statistics, dx, dgamma, dbeta};
  });
}

TEST_P(SameBits, Images) {
  for (const kernels::ConvShape& c : {kernels::ConvShape{9, 6, 100, 2, {13, 11}, {3, 2, 1, 1}}, kernels::ConvShape{70, 3, 5, 1, 9, {5}}}) {
    expect_same_bits([=, this] {
      const kernels::Pair at = c.positions();
      const Shape in{c.images, c.inputs, c.extent.h, c.extent.w}, out{c.images, c.outputs, at.h, at.w};
      const Shape weight{c.outputs, c.inputs_of_group(), c.window.kernel.h, c.window.kernel.w};
      const Tensor x = test::random(in, dtype, 1), w = test::random(weight, dtype, 2), dy = test::random(out, dtype, 3);
      const Tensor y = empty(out, dtype), dx = empty(in, dtype), dw = empty(weight, wide), db = empty({c.outputs}, wide);
      kernels::conv2d(c, x, w, w.reshape({w.elems()}).slice(0, 0, c.outputs), y, bytes(kernels::conv2d_workspace_bytes(c, dtype)));
      kernels::conv2d_input_gradient(c, dy, w, {}, dx, bytes(kernels::conv2d_input_gradient_workspace_bytes(c, dtype)));
      kernels::conv2d_weight_gradient(c, x, dy, dw, bytes(kernels::conv2d_weight_gradient_workspace_bytes(c, dtype)));
      kernels::sum_channels(dy, db);
      return std::vector<Tensor>{y, dx, dw, db};
    });
  }
}

TEST_P(SameBits, PoolsAndBatchNorm) {
  expect_same_bits([this] {
    const Shape in{7, 33, 13, 11}, out{7, 33, 7, 6};
    const Tensor x = test::random(in, dtype, 1), dy = test::random(out, dtype, 2), gamma = test::random({33}, dtype, 3);
    const kernels::Window window{3, 2, 1};
    const Tensor y = empty(out, dtype), index = empty(out, DType::int32), mean = empty(out, dtype), dx = empty(in, dtype),
                 dmean = empty(in, dtype), normal = empty(in, dtype), dnormal = empty(in, dtype);
    kernels::max_pool(x, window, y, index);
    kernels::max_pool_gradient(dy, index, window, dx);
    kernels::avg_pool(x, window, true, mean);
    kernels::avg_pool_gradient(dy, window, true, dmean);
    const Tensor statistics = empty({33, 2}, wide), running = zeros({33}, wide), spread = zeros({33}, wide), dgamma = empty({33}, wide),
                 dbeta = empty({33}, wide);
    kernels::batch_statistics(x, 1e-5, statistics, running, spread);
    kernels::batch_norm(x, gamma, gamma, statistics, normal);
    kernels::batch_norm_gradient(x, gamma, statistics, dx, true, dnormal, dgamma, dbeta);
    return std::vector<Tensor>{y, index, mean, dx, dmean, normal, dnormal, statistics, running, spread, dgamma, dbeta};
  });
}

TEST_P(SameBits, CrossEntropy) {
  expect_same_bits([this] {
    const Tensor logits = test::random({50, 1003}, dtype, 1, 3), statistics = empty({50, 2}, wide), loss = empty({50}, wide);
    std::vector<i32> targets;
    for (i32 i = 0; i < 50; ++i) targets.push_back(i % 7 == 0 ? -100 : i * 19);
    const Tensor target = test::ints(targets, {50}), total = empty({}, DType::f64);
    kernels::cross_entropy(logits, target, statistics, loss);
    kernels::sum_in_order(loss, 1, total);
    kernels::cross_entropy_gradient(logits, target, statistics, 0.01, logits);
    return std::vector<Tensor>{total, logits};
  });
}

TEST_P(SameBits, SumsRowsAndTables) {
  expect_same_bits([this] {
    const Tensor x = test::random({300, 257}, dtype, 1), columns = empty({257}, wide), rows = empty({300}, dtype), all = empty({}, dtype);
    kernels::sum_axis(x, 1, 300, 257, 1, columns);
    kernels::sum_axis(x, 300, 257, 1, 0.5, rows);
    kernels::sum_axis(x, 1, 300 * 257, 1, 1, all);
    std::vector<i32> ids;
    for (i32 i = 0; i < 300; ++i) ids.push_back(i * i % 90);
    const Tensor table = empty({90, 257}, wide), turned = empty({30, 10, 2, 128}, dtype);
    kernels::embedding_gradient(test::ints(ids, {300}), x, -1, table);
    const std::vector<double> frequencies(64, 0.1);
    kernels::rope(test::random(turned.shape(), dtype, 2), test::ints(ids, {30, 10}), frequencies, 1, false, turned);
    return std::vector<Tensor>{columns, rows, all, table, turned};
  });
}

INSTANTIATE_TEST_SUITE_P(Types, SameBits, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& type) { return std::string(to_string(type.param)); });

// A NaN or an infinity must not vanish from a sum, since the trainer skips a step if its loss or gradient norm is not finite.
TEST(NotANumber, ReachesLossAndAttention) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const i64 at : {0, 5, 16, 40}) {
    const Tensor logits = test::random({1, 41}, DType::f32, 1), statistics = empty({1, 2}, DType::f32), loss = empty({1}, DType::f32);
    logits.span<float>()[static_cast<size_t>(at)] = nan;
    kernels::cross_entropy(logits, test::ints({3}, {1}), statistics, loss);
    EXPECT_TRUE(std::isnan(test::at(loss, 0))) << at;
  }
  const Shape shape{1, 4, 1, 8};
  const Tensor q = test::random(shape, DType::f32, 1), k = test::random(shape, DType::f32, 2), out = empty(shape, DType::f32),
               lse = empty({1, 1, 4}, DType::f32);
  k.span<float>()[0] = nan;
  kernels::attention(q, k, k, {}, out, lse, bytes(kernels::attention_workspace_bytes(shape, shape, DType::f32)));
  EXPECT_TRUE(std::isnan(test::at(out, 31)));
}

}  // namespace
}  // namespace spillway::threads_test
