// Tests that quantized weights on a GPU are bitwise equal to those on the CPU. In a build with SPILLWAY_CUDA=EMULATED the GPU's code runs
// on the CPU.
#include <cstring>

#include "kernels/products/quantized.h"
#include "tests/support/gpu.h"
#include "tests/support/numbers.h"

namespace spillway::quantized_cuda_test {
namespace {

class QuantizedTwins : public test::GpuTest {};

TEST_F(QuantizedTwins, HaveTheBitsOfTheCpu) {
  using kernels::WeightFormat;
  for (const WeightFormat format : {WeightFormat::int8, WeightFormat::nf4, WeightFormat::bf16}) {
    for (const i64 count : {i64{1}, i64{7}, i64{129}, i64{70000}}) {
      const Tensor values = test::random({count}, DType::f32, 7, 0.02);
      for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
        const Tensor units = zeros({kernels::quantized_bytes(format, count) / size_of(dtype)}, dtype), want = empty({count}, dtype);
        for (i64 u = 0; u * kernels::kUnitValues < count; ++u) {
          const auto rest = values.span<float>().subspan(static_cast<size_t>(u * kernels::kUnitValues));
          kernels::quantize(format, rest.first(std::min<size_t>(rest.size(), kernels::kUnitValues)),
                            units.raw() + u * kernels::unit_bytes(format));
        }
        kernels::dequantize(format, units, want);
        const Tensor got = gpu().run([&] {
          const Tensor out = empty({count}, dtype);
          kernels::dequantize(format, gpu()(units), out);
          return out;
        });
        EXPECT_TRUE(test::same_bits(gpu().host(got), want)) << static_cast<int>(format) << " " << to_string(dtype) << " " << count;
      }
    }
  }
}

}  // namespace
}  // namespace spillway::quantized_cuda_test
