// Tests that pooling on a GPU is bitwise equal to pooling on the CPU. In a build with SPILLWAY_CUDA=EMULATED the GPU's code runs on the
// CPU.
#include "kernels/images/pool.h"

#include "tests/support/gpu.h"
#include "tests/support/numbers.h"

namespace spillway::pool_cuda_test {
namespace {

constexpr DType kFloats[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

class PoolTwins : public test::GpuTest {};

void expect_same(test::Gpu& gpu, const Tensor& got, const Tensor& want) { EXPECT_TRUE(test::same_bits(gpu.host(got), want)); }

TEST_F(PoolTwins, SlidingWindows) {
  struct Case {
    Shape x, y;
    kernels::Window window;
  };
  const Case cases[] = {
      {{1, 1, 1, 1}, {1, 1, 1, 1}, {1}},
      {{2, 3, 7, 9}, {2, 3, 4, 5}, {3, 2, 1}},                   // windows overlap, and there is padding
      {{1, 2, 8, 6}, {1, 2, 4, 3}, {2, 2, 0}},                   // windows tile the image
      {{3, 1, 9, 20}, {3, 1, 2, 17}, {{3, 4}, {5, 1}, {0, 0}}},  // windows skip rows of the image
  };
  for (const Case& c : cases) {
    for (const DType dtype : kFloats) {
      Tensor x = test::random(c.x, dtype, 1);
      if (dtype == DType::f32 && x.elems() > 20) x.data<float>()[13] = std::nanf(""), x.data<float>()[3] = x.data<float>()[4];
      const Tensor dy = test::random(c.y, dtype, 2), y = empty(c.y, dtype), index = empty(c.y, DType::int32), dx = empty(c.x, dtype);
      const Tensor gpu_y = gpu().empty(c.y, dtype), gpu_index = gpu().empty(c.y, DType::int32), gpu_dx = gpu().empty(c.x, dtype);
      kernels::max_pool(x, c.window, y, index);
      kernels::max_pool_gradient(dy, index, c.window, dx);
      gpu().run([&] {
        kernels::max_pool(gpu()(x), c.window, gpu_y, gpu_index);
        kernels::max_pool_gradient(gpu()(dy), gpu_index, c.window, gpu_dx);
      });
      expect_same(gpu(), gpu_y, y), expect_same(gpu(), gpu_index, index), expect_same(gpu(), gpu_dx, dx);
      const Tensor clean = test::random(c.x, dtype, 3);
      for (const bool counts_padding : {true, false}) {
        kernels::avg_pool(clean, c.window, counts_padding, y);
        kernels::avg_pool_gradient(dy, c.window, counts_padding, dx);
        gpu().run([&] {
          kernels::avg_pool(gpu()(clean), c.window, counts_padding, gpu_y);
          kernels::avg_pool_gradient(gpu()(dy), c.window, counts_padding, gpu_dx);
        });
        expect_same(gpu(), gpu_y, y), expect_same(gpu(), gpu_dx, dx);
      }
    }
  }
}

TEST_F(PoolTwins, EvenCuts) {
  constexpr i64 kExtents[][4] = {{1, 1, 1, 1}, {7, 9, 1, 1}, {8, 6, 4, 3}, {5, 7, 3, 4}, {2, 3, 5, 3}};
  for (const auto& [h, w, rows, columns] : kExtents) {
    for (const DType dtype : kFloats) {
      const Shape in{2, 3, h, w}, out{2, 3, rows, columns};
      const Tensor x = test::random(in, dtype, 1), dy = test::random(out, dtype, 2), y = empty(out, dtype), dx = empty(in, dtype);
      const Tensor gpu_y = gpu().empty(out, dtype), gpu_dx = gpu().empty(in, dtype);
      kernels::adaptive_avg_pool(x, y);
      kernels::adaptive_avg_pool_gradient(dy, dx);
      gpu().run([&] {
        kernels::adaptive_avg_pool(gpu()(x), gpu_y);
        kernels::adaptive_avg_pool_gradient(gpu()(dy), gpu_dx);
      });
      expect_same(gpu(), gpu_y, y), expect_same(gpu(), gpu_dx, dx);
      const Tensor index = empty(out, DType::int32), gpu_index = gpu().empty(out, DType::int32);
      kernels::adaptive_max_pool(x, y, index);
      kernels::adaptive_max_pool_gradient(dy, index, dx);
      gpu().run([&] {
        kernels::adaptive_max_pool(gpu()(x), gpu_y, gpu_index);
        kernels::adaptive_max_pool_gradient(gpu()(dy), gpu_index, gpu_dx);
      });
      expect_same(gpu(), gpu_y, y), expect_same(gpu(), gpu_index, index), expect_same(gpu(), gpu_dx, dx);
    }
  }
}

}  // namespace
}  // namespace spillway::pool_cuda_test
