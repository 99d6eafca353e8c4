// Tests that experts are exported in MXFP4: the rounding by the rule of OCP Microscaling Formats 1.0, and equal bytes where nothing was
// trained.
#include "data/weights/mxfp4.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>

#include "base/error.h"
#include "models/export/folder.h"
#include "tests/support/fixtures.h"
#include "tests/support/numbers.h"
#include "tests/support/temporary_folder.h"

namespace spillway::models::mxfp4_test {
namespace {

using Bytes = std::vector<std::byte>;
using Block = std::array<float, data::kMxfp4Block>;

struct Encoded {
  Bytes blocks = Bytes(16), scales = Bytes(1);
  int scale() const { return static_cast<int>(scales[0]); }
  int code(int i) const { return static_cast<int>(blocks[static_cast<size_t>(i) / 2]) >> (i % 2 * 4) & 15; }
};

Encoded encoded(const Block& values) {
  Encoded e;
  data::encode_mxfp4(values, e.blocks, e.scales);
  return e;
}

// Returns a block whose largest magnitude is 4, so that its scale is 1 (byte 127), and that has these values first.
Block block_of(std::initializer_list<float> values) {
  Block block{};
  std::ranges::copy(values, block.begin());
  block.back() = -4;
  return block;
}

TEST(Mxfp4, RoundsToTheNearestAndTiesToEvenCodes) {
  const Encoded e = encoded(block_of({0.25F, 0.26F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, -0.2F, -3.4F, -0.0F}));
  EXPECT_EQ(e.scale(), 127);
  constexpr int kCodes[] = {0, 1, 2, 2, 4, 4, 6, 8, 13, 8, 0};
  for (int i = 0; i < 11; ++i) EXPECT_EQ(e.code(i), kCodes[i]) << i;
  EXPECT_EQ(e.code(31), 14);
}

TEST(Mxfp4, TheScaleIsThePowerOfTwoBelowTheLargestDividedByFour) {
  Block block{};
  EXPECT_EQ(encoded(block).scale(), 0);
  block[3] = 7.9F;  // is nearer to 8, but above 6 there is nothing
  EXPECT_EQ(encoded(block).scale(), 127);
  EXPECT_EQ(encoded(block).code(3), 7);
  block[3] = 8;
  EXPECT_EQ(encoded(block).scale(), 128);
  EXPECT_EQ(encoded(block).code(3), 6);
  block[3] = std::ldexp(3.0F, 120);
  EXPECT_EQ(encoded(block).scale(), 127 + 119);
  block[3] = std::ldexp(1.0F, -140);  // below the smallest scale: 2^-127 times 0 or 0.5
  EXPECT_EQ(encoded(block).scale(), 0);
  EXPECT_EQ(encoded(block).code(3), 0);
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    block[5] = bad;
    EXPECT_EQ(encoded(block).scale(), 255);
  }
}

// Values that are exact in MXFP4 are encoded exactly, whatever the scale.
TEST(Mxfp4, ExactValuesStay) {
  constexpr float kMagnitudes[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  for (int exponent = -100; exponent < 100; exponent += 7) {
    Block block{};
    for (size_t i = 0; i < block.size(); ++i) block[i] = std::ldexp(kMagnitudes[i * 5 % 8], exponent) * (i % 3 == 0 ? -1.0F : 1.0F);
    const Encoded e = encoded(block);
    for (size_t i = 0; i < block.size(); ++i) {
      const int code = e.code(static_cast<int>(i));
      EXPECT_EQ(std::ldexp(kMagnitudes[code & 7], e.scale() - 127) * (code & 8 ? -1.0F : 1.0F), block[i]);
    }
  }
}

std::map<std::string, Bytes> tensors_of(const std::filesystem::path& folder) {
  const data::SafetensorsReader reader(folder / "model.safetensors");
  std::map<std::string, Bytes> all;
  for (const data::TensorInfo& info : reader.tensors()) {
    Bytes bytes(static_cast<size_t>(info.bytes()));
    reader.read(info, 0, bytes);
    all.emplace(info.name, std::move(bytes));
  }
  return all;
}

// Returns how many tensors of bytes are equal in both, and expects that there are as many of blocks and scales.
void expect_equal_bytes(const std::filesystem::path& one, const std::filesystem::path& other) {
  const auto a = tensors_of(one), b = tensors_of(other);
  int compared = 0;
  for (const auto& [name, bytes] : a) {
    if (!name.ends_with("_blocks") && !name.ends_with("_scales")) continue;
    ++compared;
    EXPECT_TRUE(b.contains(name) && b.at(name) == bytes) << name;
  }
  EXPECT_GE(compared, 4);
  EXPECT_EQ(a.size(), b.size());
}

ExportResult exported(const std::filesystem::path& from, const std::filesystem::path& to, const char* dtype) {
  std::filesystem::create_directories(to);
  return export_folder(PlainModel(read_config(from), from), to, dtype, kGiB);
}

TEST(Mxfp4, ExportsHaveTheBytesOfTheFolderWhereNothingWasTrained) {
  const std::filesystem::path from = test::data("families/gpt-oss-mxfp4");
  const test::TemporaryFolder folder;
  exported(from, folder / "same", "mxfp4");
  expect_equal_bytes(folder / "same", from);
  // Through fp32 the values are encoded again, by the rule that the fixture's maker follows too.
  exported(from, folder / "wide", "fp32");
  exported(folder / "wide", folder / "again", "mxfp4");
  expect_equal_bytes(folder / "again", from);
  EXPECT_EQ(read_config(folder / "again"), read_config(from));
  EXPECT_NE(config_text(folder / "again").find("\"quant_method\": \"mxfp4\""), std::string::npos);
}

// Another program may have chosen a larger scale than the rule gives. The bytes of the folder stay.
TEST(Mxfp4, ScalesOfTheFolderStay) {
  const std::filesystem::path from = test::data("families/gpt-oss-mxfp4");
  const test::TemporaryFolder folder;
  std::filesystem::copy(from, folder / "changed");
  const auto all = tensors_of(from);
  const data::SafetensorsReader reader(from / "model.safetensors");
  data::SafetensorsWriter writer(folder / "changed" / "model.safetensors", reader.tensors());
  for (const data::TensorInfo& info : writer.tensors()) {
    Bytes bytes = all.at(info.name);
    if (info.name.ends_with("_scales")) std::ranges::fill(bytes, std::byte{120});
    if (info.name.ends_with("_blocks")) std::ranges::fill(bytes, std::byte{0x21});  // 0.5 and 1
    writer.write(info, 0, bytes);
  }
  writer.finish();
  exported(folder / "changed", folder / "same", "mxfp4");
  expect_equal_bytes(folder / "same", folder / "changed");
}

TEST(Mxfp4, OtherModelsAreRefused) {
  const test::TemporaryFolder folder;
  for (const char* name : {"families/gpt-oss", "llama-tiny"}) {  // the first has widths of 16
    try {
      exported(test::data(name), folder / "out", "mxfp4");
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::usage);
      EXPECT_NE(std::string(error.what()).find("--dtype"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace spillway::models::mxfp4_test
