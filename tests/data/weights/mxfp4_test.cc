// Tests MXFP4: each code with each scale, against the number that their bits say, and ranges that begin and end anywhere.
#include "data/weights/mxfp4.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/temporary_folder.h"

namespace spillway::data::mxfp4_test {
namespace {

const std::string kBlocks = "w_blocks", kScales = "w_scales";
constexpr i64 kRows = 256, kColumns = 64;  // row r has the scale r in both blocks, and each block has all codes twice
const Shape kShape{kRows, kColumns};

void write(const std::filesystem::path& folder) {
  SafetensorsWriter writer(folder / "model.safetensors", {{.name = kBlocks, .dtype = DType::uint8, .shape = {kRows, 2, 16}},
                                                          {.name = kScales, .dtype = DType::uint8, .shape = {kRows, 2}}});
  std::vector<std::byte> codes, scales;
  for (i64 i = 0; i < kRows * 2; ++i) {
    for (int byte = 0; byte < 16; ++byte) codes.push_back(static_cast<std::byte>(byte | ((byte + 5) % 16) << 4));
    scales.push_back(static_cast<std::byte>(i / 2));
  }
  writer.write(writer.tensors()[0], 0, codes);
  writer.write(writer.tensors()[1], 0, scales);
  writer.finish();
}

// Computes a value from the bits of its code: sign, two bits of exponent with a bias of 1, one bit of mantissa.
float value_of(i64 element) {
  const i64 row = element / kColumns, byte = element % 32 / 2, code = element % 2 == 0 ? byte : (byte + 5) % 16;
  if (row == 255) return NAN;
  const i64 exponent = code / 2 % 4, mantissa = code % 2;
  const double magnitude = exponent == 0 ? 0.5 * static_cast<double>(mantissa)
                                         : std::ldexp(1 + 0.5 * static_cast<double>(mantissa), static_cast<int>(exponent - 1));
  return static_cast<float>(std::ldexp(code >= 8 ? -magnitude : magnitude, static_cast<int>(row - 127)));
}

class Mxfp4 : public ::testing::Test {
 protected:
  Mxfp4() { write(folder_.path()); }
  std::vector<BFloat16> read(i64 begin, i64 end) const {
    std::vector<BFloat16> values(static_cast<size_t>(end - begin));
    read_mxfp4(WeightFolder(folder_.path()), kBlocks, kScales, begin, std::as_writable_bytes(std::span(values)));
    return values;
  }
  test::TemporaryFolder folder_;
};

TEST_F(Mxfp4, EveryCodeWithEveryScale) {
  const std::vector<BFloat16> got = read(0, kShape.elems());
  for (i64 i = 0; i < kShape.elems(); ++i) {
    const float value = widen(got[static_cast<size_t>(i)]), want = value_of(i);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(value)) << i;
    } else {
      ASSERT_EQ(value, want) << i;
      ASSERT_EQ(std::signbit(value), std::signbit(want)) << i;
    }
  }
}

TEST_F(Mxfp4, RangesBeginAndEndAnywhere) {
  for (const auto& [begin, end] : {std::pair<i64, i64>{0, 1}, {1, 2}, {31, 33}, {5, 5}, {63, 8195}, {8000, 16000}}) {
    const std::vector<BFloat16> got = read(begin, end);
    for (i64 i = begin; i < end; ++i) ASSERT_EQ(widen(got[static_cast<size_t>(i - begin)]), value_of(i)) << i;
  }
}

TEST_F(Mxfp4, TheShapesMustFit) {
  const WeightFolder weights(folder_.path());
  EXPECT_TRUE(is_mxfp4(weights, kBlocks, kScales, kShape));
  EXPECT_FALSE(is_mxfp4(weights, kBlocks, kScales, {kColumns, kRows}));
  EXPECT_FALSE(is_mxfp4(weights, kBlocks, kScales, {kRows, kColumns - 1}));
  EXPECT_FALSE(is_mxfp4(weights, kBlocks, "others", kShape));
  EXPECT_FALSE(is_mxfp4(weights, kScales, kBlocks, kShape));
}

}  // namespace
}  // namespace spillway::data::mxfp4_test
