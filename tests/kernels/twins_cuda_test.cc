// Compares the kernels that add and copy tensors on a GPU with their CPU implementation, over
// types and odd sizes. In a build with SPILLWAY_CUDA=EMULATED the GPU's code runs on the CPU.
#include "kernels/accumulate.h"
#include "tests/support/gpu.h"
#include "tests/support/numbers.h"

namespace spillway::twins_cuda_test {
namespace {

constexpr DType kFloats[] = {DType::f32, DType::f64, DType::bf16, DType::f16};
constexpr i64 kSizes[] = {1, 3, 16, 1000, 4099};

class Twins : public test::GpuTest {};

TEST_F(Twins, AddAndCopy) {
  for (const DType dtype : kFloats) {
    for (const i64 n : kSizes) {
      const Tensor a = test::random({n}, dtype, 1), b = test::random({n}, dtype, 2), want = empty({n}, dtype);
      kernels::add(a, b, want);
      const Tensor got = gpu().empty({n}, dtype), copied = gpu().empty({n}, dtype);
      gpu().run([&] {
        kernels::add(gpu()(a), gpu()(b), got);
        kernels::copy(got, copied);
      });
      EXPECT_TRUE(test::same_bits(gpu().host(got), want));
      EXPECT_TRUE(test::same_bits(gpu().host(copied), want));
    }
  }
}

}  // namespace
}  // namespace spillway::twins_cuda_test
