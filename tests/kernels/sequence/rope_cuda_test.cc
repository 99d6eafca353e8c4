// Tests rotary embedding and dropout on a GPU. Dropout is bitwise equal to the CPU's. Rotations are near those computed in the next wider
// type.
#include "kernels/sequence/rope.h"

#include "kernels/elementwise/dropout.h"
#include "tests/support/gpu.h"
#include "tests/support/numbers.h"

namespace spillway::rope_cuda_test {
namespace {

constexpr DType kFloats[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

class RopeTwins : public test::GpuTest {
 protected:
  // Rotates a view on the GPU that begins `first` elements into its storage, and returns the result.
  Tensor run(const Tensor& x, i64 first, const Tensor& positions, std::span<const double> frequencies, bool back) {
    const Tensor whole = gpu().empty({first + x.elems()}, x.dtype());
    const Tensor y = whole.slice(0, first, first + x.elems()).reshape(x.shape());
    gpu().run([&] {
      kernels::rope(gpu()(x), gpu()(positions), frequencies, 0.75, back, y);
      kernels::rope(gpu()(x), gpu()(positions), frequencies, 0.75, back, y);
    });
    return gpu().host(y);
  }
};

// Compares rotations with the next wider type. The angle is the product rounded to the type, which both sides compute alike. CUDA's
// sine and cosine are accurate to 2 ulp (of f64, and of f32 over the whole range: Programming Guide 13.0, "Mathematical Functions"),
// that is 2 eps at most. Scaling, the two products and their sum add half an eps each of numbers not larger than scaling * (|u| + |v|).
void check(const Tensor& x, const Tensor& y, const Tensor& positions, std::span<const double> frequencies, bool back) {
  const i64 pairs = static_cast<i64>(frequencies.size()), rows = x.elems() / (2 * pairs), heads = x.size(2);
  const double eps = 2 * test::half_ulp(wide_dtype(x.dtype())), stored = is_half(x.dtype()) ? test::half_ulp(x.dtype()) : 0;
  for (i64 row = 0; row < rows; ++row) {
    const i32 position = positions.data<i32>()[row / heads];
    for (i64 i = 0; i < pairs; ++i) {
      const double wide = position * frequencies[static_cast<size_t>(i)];
      const double narrow = static_cast<float>(position) * static_cast<float>(frequencies[static_cast<size_t>(i)]);
      const long double angle = x.dtype() == DType::f64 ? wide : narrow, c = std::cos(angle), s = std::sin(back ? -angle : angle);
      const double u = test::at(x, row * 2 * pairs + i), v = test::at(x, row * 2 * pairs + pairs + i);
      const auto first = static_cast<double>((u * c - v * s) * 0.75L), second = static_cast<double>((v * c + u * s) * 0.75L);
      const double near = 4 * eps * 0.75 * (std::abs(u) + std::abs(v));
      ASSERT_NEAR(test::at(y, row * 2 * pairs + i), first, near + stored * (std::abs(first) + near)) << row << " " << i;
      ASSERT_NEAR(test::at(y, row * 2 * pairs + pairs + i), second, near + stored * (std::abs(second) + near)) << row << " " << i;
    }
  }
}

TEST_F(RopeTwins, TurnsThereAndBack) {
  for (const DType dtype : kFloats) {
    for (const Shape& shape : {Shape{1, 1, 1, 2}, Shape{2, 3, 5, 10}, Shape{1, 4, 9, 64}, Shape{1, 2, 2, 1024}}) {
      SCOPED_TRACE(to_string(shape) + " " + std::string(to_string(dtype)));
      std::vector<double> frequencies(static_cast<size_t>(shape[3] / 2));
      for (size_t i = 0; i < frequencies.size(); ++i) {
        frequencies[i] = std::pow(10000.0, -static_cast<double>(2 * i) / static_cast<double>(shape[3]));
      }
      const Tensor x = test::random(shape, dtype, 1), positions = empty({shape[0], shape[1]}, DType::int32);
      for (i64 i = 0; i < positions.elems(); ++i) positions.data<i32>()[i] = static_cast<i32>(i * i * 131071);
      for (const bool back : {false, true}) {
        const Tensor y = run(x, 0, positions, frequencies, back);
        check(x, y, positions, frequencies, back);
        EXPECT_TRUE(test::same_bits(run(x, 1, positions, frequencies, back), y));
      }
    }
  }
}

TEST_F(RopeTwins, InPlace) {
  const double frequencies[] = {1, 0.5, 0.25, 0.125, 0.1, 0.01, 0.001, 0.0001};
  for (const DType dtype : kFloats) {
    const Tensor x = test::random({2, 3, 4, 16}, dtype, 1), positions = test::ints({0, 1, 2, 7, 8, 9}, {2, 3}), got = gpu()(x);
    gpu().run([&] { kernels::rope(got, gpu()(positions), frequencies, 0.75, false, got); });
    EXPECT_TRUE(test::same_bits(gpu().host(got), run(x, 0, positions, frequencies, false)));
  }
}

class DropoutTwins : public test::GpuTest {};

TEST_F(DropoutTwins, HasTheBitsOfTheCpu) {
  const RandomKey key = RandomKey{5}.derive("dropout");
  const i64 first_sample = (i64{1} << 33) - 1;
  for (const DType dtype : kFloats) {
    for (const Shape& shape : {Shape{1}, Shape{3, 1}, Shape{3, 7}, Shape{2, 5, 8}, Shape{2, 1030}}) {
      for (const double p : {0.0, 0.1, 0.9}) {
        const Tensor x = test::random(shape, dtype, 1), want = empty(shape, dtype), got = gpu().empty(shape, dtype), in_place = gpu()(x);
        kernels::dropout(x, p, key, first_sample, want);
        gpu().run([&] {
          kernels::dropout(gpu()(x), p, key, first_sample, got);
          kernels::dropout(in_place, p, key, first_sample, in_place);
        });
        EXPECT_TRUE(test::same_bits(gpu().host(got), want)) << to_string(shape) << " " << p;
        EXPECT_TRUE(test::same_bits(gpu().host(in_place), want)) << to_string(shape) << " " << p;
      }
    }
  }
}

TEST_F(DropoutTwins, InAnOddPlace) {
  for (const DType dtype : kFloats) {
    const Tensor x = test::random({33}, dtype, 1), want = empty({2, 16}, dtype), got = gpu().empty({33}, dtype);
    kernels::dropout(x.slice(0, 1, 33).reshape({2, 16}), 0.5, RandomKey{9}, 3, want);
    gpu().run([&] {
      kernels::dropout(gpu()(x).slice(0, 1, 33).reshape({2, 16}), 0.5, RandomKey{9}, 3, got.slice(0, 1, 33).reshape({2, 16}));
    });
    EXPECT_TRUE(test::same_bits(gpu().host(got.slice(0, 1, 33).reshape({2, 16})), want));
  }
}

}  // namespace
}  // namespace spillway::rope_cuda_test
