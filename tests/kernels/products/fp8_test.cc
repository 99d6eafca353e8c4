// Tests fp8's codes against the tables of values of PyTorch's types, and products of rounded matrices against fp64.
#include "kernels/products/fp8.h"

#include <hwy/highway.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"
#include "tests/kernels/products/support_matmul.h"

namespace spillway::fp8_test {
namespace {

using kernels::Fp8;
constexpr Fp8 kFormats[] = {Fp8::e4m3, Fp8::e5m2};

// The values of the codes 0, 1, … of torch.float8_e4m3fn and torch.float8_e5m2 (PyTorch 2.9.1) up to the largest finite one, in units of
// the smallest positive value, 2^-9 and 2^-16.
const std::vector<i64> kOfE4m3 = {
    0,     1,     2,     3,     4,     5,      6,      7,      8,      9,      10,     11,     12,     13,     14,    15,
    16,    18,    20,    22,    24,    26,     28,     30,     32,     36,     40,     44,     48,     52,     56,    60,
    64,    72,    80,    88,    96,    104,    112,    120,    128,    144,    160,    176,    192,    208,    224,   240,
    256,   288,   320,   352,   384,   416,    448,    480,    512,    576,    640,    704,    768,    832,    896,   960,
    1024,  1152,  1280,  1408,  1536,  1664,   1792,   1920,   2048,   2304,   2560,   2816,   3072,   3328,   3584,  3840,
    4096,  4608,  5120,  5632,  6144,  6656,   7168,   7680,   8192,   9216,   10240,  11264,  12288,  13312,  14336, 15360,
    16384, 18432, 20480, 22528, 24576, 26624,  28672,  30720,  32768,  36864,  40960,  45056,  49152,  53248,  57344, 61440,
    65536, 73728, 81920, 90112, 98304, 106496, 114688, 122880, 131072, 147456, 163840, 180224, 196608, 212992, 229376};
const std::vector<i64> kOfE5m2 = {
    0,          1,          2,         3,         4,         5,         6,          7,          8,          10,         12,
    14,         16,         20,        24,        28,        32,        40,         48,         56,         64,         80,
    96,         112,        128,       160,       192,       224,       256,        320,        384,        448,        512,
    640,        768,        896,       1024,      1280,      1536,      1792,       2048,       2560,       3072,       3584,
    4096,       5120,       6144,      7168,      8192,      10240,     12288,      14336,      16384,      20480,      24576,
    28672,      32768,      40960,     49152,     57344,     65536,     81920,      98304,      114688,     131072,     163840,
    196608,     229376,     262144,    327680,    393216,    458752,    524288,     655360,     786432,     917504,     1048576,
    1310720,    1572864,    1835008,   2097152,   2621440,   3145728,   3670016,    4194304,    5242880,    6291456,    7340032,
    8388608,    10485760,   12582912,  14680064,  16777216,  20971520,  25165824,   29360128,   33554432,   41943040,   50331648,
    58720256,   67108864,   83886080,  100663296, 117440512, 134217728, 167772160,  201326592,  234881024,  268435456,  335544320,
    402653184,  469762048,  536870912, 671088640, 805306368, 939524096, 1073741824, 1342177280, 1610612736, 1879048192, 2147483648,
    2684354560, 3221225472, 3758096384};

double value_in_table(Fp8 format, size_t code) {
  return format == Fp8::e4m3 ? std::ldexp(kOfE4m3[code], -9) : std::ldexp(kOfE5m2[code], -16);
}
size_t codes_in_table(Fp8 format) { return format == Fp8::e4m3 ? kOfE4m3.size() : kOfE5m2.size(); }

TEST(Fp8, CodesHaveTheValuesOfPyTorch) {
  for (const Fp8 format : kFormats) {
    const size_t count = codes_in_table(format);
    EXPECT_EQ(value_in_table(format, count - 1), kernels::fp8_largest(format));
    for (size_t code = 0; code < 128; ++code) {
      const float plus = kernels::fp8_value(format, static_cast<u8>(code)),
                  minus = kernels::fp8_value(format, static_cast<u8>(code | 0x80));
      if (code >= count) {
        EXPECT_TRUE(std::isnan(plus) && std::isnan(minus)) << code;
        continue;
      }
      EXPECT_EQ(plus, value_in_table(format, code));
      EXPECT_EQ(minus, -value_in_table(format, code));
      EXPECT_EQ(std::signbit(minus), true);
      EXPECT_EQ(kernels::fp8_code(format, plus), code);
      EXPECT_EQ(kernels::fp8_code(format, minus), code | 0x80);
    }
  }
}

// Looks at both fp32 neighbours of every code and of the middle between two codes, at the middle itself, and beyond the last code.
TEST(Fp8, RoundsToTheNearestCodeAndTiesToTheEvenOne) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const Fp8 format : kFormats) {
    const auto expect = [&](double x, size_t code) {
      EXPECT_EQ(kernels::fp8_code(format, static_cast<float>(x)), code) << x;
      EXPECT_EQ(kernels::fp8_code(format, static_cast<float>(-x)), code | 0x80) << x;
    };
    const size_t count = codes_in_table(format);
    for (size_t code = 0; code + 1 < count; ++code) {
      const auto below = static_cast<float>(value_in_table(format, code)), above = static_cast<float>(value_in_table(format, code + 1));
      const float middle = (below + above) / 2;  // exact
      expect(std::nextafter(below, kInfinity), code);
      expect(std::nextafter(middle, 0.F), code);
      expect(middle, code % 2 == 0 ? code : code + 1);
      expect(std::nextafter(middle, kInfinity), code + 1);
      expect(std::nextafter(above, 0.F), code + 1);
    }
    for (const float beyond : {1.03F, 2.F, 1e30F}) expect(beyond * kernels::fp8_largest(format), count - 1);
    for (const float bad : {kInfinity, -kInfinity, std::nanf("")})
      EXPECT_TRUE(std::isnan(kernels::fp8_value(format, kernels::fp8_code(format, bad)))) << bad;
  }
}

// Tries every bf16 magnitude as the largest of a tensor.
TEST(Fp8, ScaleIsTheLargestPowerOfTwoThatFits) {
  for (const Fp8 format : kFormats) {
    const int most = format == Fp8::e4m3 ? 117 : 110;
    for (u32 half = 1; half < 0x7f80; ++half) {
      const double largest = widen(BFloat16{static_cast<u16>(half)}), limit = kernels::fp8_largest(format);
      const int exponent = kernels::fp8_scale_exponent(format, half << 16);
      ASSERT_LE(std::ldexp(largest, exponent), limit) << largest;
      ASSERT_TRUE(exponent == most || std::ldexp(largest, exponent + 1) > limit) << largest;
      ASSERT_LE(exponent, most);
    }
    for (const u32 bits : {0u, 0x7f800000u, 0x7fc00000u}) EXPECT_EQ(kernels::fp8_scale_exponent(format, bits), 0) << bits;
  }
}

Tensor rounded(Fp8 format, const Tensor& x) {
  const Tensor to = x.is_contiguous() ? empty(x.shape(), DType::bf16) : empty({x.size(1), x.size(0)}, DType::bf16).transpose(0, 1);
  kernels::fp8_round({x, format}, to, empty({kernels::kFp8ScratchBytes}, DType::uint8));
  return to;
}

// Rounds all bf16 numbers up to a largest one, with each instruction set, and compares with the codes one by one.
TEST(Fp8, RoundedTensorsHoldTheValuesOfCodes) {
  const i64 targets = hwy::SupportedTargets();
  for (i64 left = targets; left != 0; left &= left - 1) {
    hwy::SetSupportedTargetsForTest(left & -left);
    for (const Fp8 format : kFormats) {
      for (const u32 largest : {0x0003u, 0x0080u, 0x1234u, 0x3f80u, 0x43e0u, 0x43e1u, 0x5fffu, 0x7f7fu}) {
        const i64 count = 2 * largest + 2;
        const Tensor x = empty({count}, DType::bf16);
        for (i64 i = 0; i < count; ++i) x.data<BFloat16>()[i] = {static_cast<u16>(i / 2 | (i % 2 << 15))};
        const Tensor got = rounded(format, x);
        const int exponent = kernels::fp8_scale_exponent(format, largest << 16);
        for (i64 i = 0; i < count; ++i) {
          const u8 code = kernels::fp8_code(format, widen(x.data<BFloat16>()[i]) * kernels::power_of_two(exponent));
          const float want = kernels::fp8_value(format, code) * kernels::power_of_two(-exponent);
          ASSERT_EQ(narrow<BFloat16>(want).bits, got.data<BFloat16>()[i].bits) << largest << " " << i;
          if (std::abs(want) < 3e38F) {
            ASSERT_EQ(want, widen(narrow<BFloat16>(want))) << "is exact in bf16";
          }
        }
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(Fp8, NumbersThatAreNotFiniteBecomeNan) {
  for (const Fp8 format : kFormats) {
    for (const u16 bad : {u16{0x7f80}, u16{0xff80}, u16{0x7fc0}}) {
      for (const i64 at : {i64{0}, i64{19}, i64{40000}}) {
        const Tensor x = test::random({40001}, DType::bf16, 1);
        x.data<BFloat16>()[at] = {bad};
        const Tensor got = rounded(format, x);
        for (i64 i = 0; i < x.elems(); ++i) ASSERT_EQ(std::isnan(test::at(got, i)), i == at) << i;
      }
    }
  }
}

TEST(Fp8, ZerosStayZeros) {
  const Tensor x = zeros({33}, DType::bf16);
  EXPECT_TRUE(test::same_bits(rounded(Fp8::e4m3, x), x));
}

TEST(Fp8, ResultsDoNotDependOnThreads) {
  const Tensor x = test::random({100000}, DType::bf16, 3);
  const Tensor alone = rounded(Fp8::e5m2, x);
  test::with_threads(3, [&] { EXPECT_TRUE(test::same_bits(rounded(Fp8::e5m2, x), alone)); });
}

Tensor multiplied(const Tensor& addend, Fp8 of_a, Fp8 of_b, const Tensor& a, const Tensor& b, const Tensor& bias, DType out) {
  const Tensor y = empty({a.size(0), b.size(1)}, out);
  const i64 bytes = kernels::fp8_matmul_workspace_bytes(a.size(0), b.size(1), a.size(1), out);
  kernels::fp8_matmul(addend, {a, of_a}, {b, of_b}, bias, y, empty({bytes}, DType::uint8));
  return y;
}

TEST(Fp8, ProductsOfTheRoundedValues) {
  for (const test::Extents& e : {test::Extents{1, 1, 1}, {3, 5, 2}, {48, 32, 64}, {17, 33, 129}}) {
    for (int layout = 0; layout < 4; ++layout) {
      const bool a_flip = layout & 1, b_flip = layout & 2;
      const Tensor a = test::view_in(test::whole_of(e.m, e.k, a_flip, false, DType::bf16, 1), e.m, e.k, a_flip);
      const Tensor b = test::view_in(test::whole_of(e.k, e.n, b_flip, false, DType::bf16, 2), e.k, e.n, b_flip);
      const Tensor bias = test::random({e.n}, DType::bf16, 3), addend = test::random({e.m, e.n}, DType::bf16, 4);
      for (const auto& [of_a, of_b] : {std::pair(Fp8::e4m3, Fp8::e4m3), {Fp8::e5m2, Fp8::e4m3}, {Fp8::e4m3, Fp8::e5m2}}) {
        const Tensor left = rounded(of_a, a), right = rounded(of_b, b);
        const double eps = test::half_ulp(DType::f32);
        test::expect_product(left, right, {}, multiplied({}, of_a, of_b, a, b, {}, DType::f32), eps);
        test::expect_product(left, right, bias, multiplied({}, of_a, of_b, a, b, bias, DType::bf16), eps);
        const Tensor want = empty({e.m, e.n}, DType::bf16);
        kernels::matmul_onto(addend, left, right, bias, want,
                             empty({kernels::matmul_workspace_bytes(e.m, e.n, e.k, DType::bf16)}, DType::uint8));
        EXPECT_TRUE(test::same_bits(multiplied(addend, of_a, of_b, a, b, bias, DType::bf16), want));
      }
    }
  }
}

TEST(Fp8, RefusesTwoOperandsInE5m2AndOtherTypes) {
  const Tensor a = test::random({2, 2}, DType::bf16, 1), wide = test::random({2, 2}, DType::f32, 1);
  EXPECT_THROW(multiplied({}, Fp8::e5m2, Fp8::e5m2, a, a, {}, DType::bf16), Error);
  EXPECT_THROW(multiplied({}, Fp8::e4m3, Fp8::e4m3, wide, wide, {}, DType::f32), Error);
}

}  // namespace
}  // namespace spillway::fp8_test
