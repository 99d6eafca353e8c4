// Compares llm.c's model files with the transformers model that they were written from (tests/peers/imports.py).
// Every tensor is exact and in Hugging Face's layout. Damaged files are refused by name. The test takes 0.4 s.
#include "data/weights/llm_c_file.h"

#include <gmock/gmock.h>

#include <cstring>

#include "data/weights/transposed.h"
#include "data/weights/weight_folder.h"
#include "tests/data/support_files.h"
#include "tests/support/fixtures.h"

namespace spillway::data::llm_c_file_test {
namespace {

using namespace spillway::test;
using testing::HasSubstr;

template <class File>
std::vector<double> all_of(const File& file, const TensorInfo& info, size_t piece = 1000) {
  std::vector<double> values(static_cast<size_t>(info.shape.elems()));
  for (size_t at = 0; at < values.size(); at += piece)
    file.read_wide(info, static_cast<i64>(at), std::span(values).subspan(at, std::min(piece, values.size() - at)));
  return values;
}

TEST(LlmCFile, HoldsWhatTransformersHas) {
  const SafetensorsReader want(test::data("imports/model.safetensors"));
  for (const bool bf16 : {false, true}) {
    const LlmCFile file(test::data(bf16 ? "imports/gpt2_bf16.bin" : "imports/gpt2.bin"));
    EXPECT_EQ(file.header().dtype, bf16 ? DType::bf16 : DType::f32);
    EXPECT_EQ(file.header().padded_vocabulary, 128);
    ASSERT_EQ(file.tensors().size(), want.tensors().size());
    size_t compared = 0;
    for (const TensorInfo& info : file.tensors()) {
      const TensorInfo* reference = want.find(info.name);
      ASSERT_TRUE(reference) << info.name;
      EXPECT_EQ(info.shape, reference->shape) << info.name;
      std::vector<double> numbers = all_of(want, *reference);
      for (double& x : numbers) {
        if (bf16) x = widen(narrow<BFloat16>(static_cast<float>(x)));
      }
      for (const size_t piece : {size_t{1}, size_t{7}, size_t{1} << 20}) EXPECT_EQ(all_of(file, info, piece), numbers) << info.name;
      compared += numbers.size();
    }
    EXPECT_EQ(compared, 4716u);
  }
}

TEST(LlmCFile, IsAFolderOfWeightsInOneFile) {
  const WeightFolder file(test::data("imports/gpt2.bin"));
  EXPECT_EQ(file.names().size(), 28u);
  EXPECT_EQ(file.find("transformer.wte.weight")->shape, (Shape{61, 12}));
}

// Transposes a matrix in bands of several widths and compares each element.
TEST(Transposed, IsTheMatrixTheOtherWayRound) {
  const i64 rows = 5, columns = 7;
  const auto values = [&](i64 begin, std::span<double> out) {
    for (double& x : out) x = static_cast<double>(begin++);
  };
  for (const i64 count : {1, 3, 7}) {
    for (i64 begin = 0; begin + count <= columns; ++begin) {
      std::vector<float> band(static_cast<size_t>(count * rows));
      read_transposed(rows, columns, values, begin, count, band);
      for (i64 i = 0; i < count * rows; ++i)
        EXPECT_EQ(band[static_cast<size_t>(i)], static_cast<float>(i % rows * columns + begin + i / rows));
    }
  }
  EXPECT_EQ(transposed_band(i64{1} << 30), 1);
  EXPECT_EQ(transposed_band(1024), 4096);
}

TEST(LlmCFile, WhatIsNoneOrDamagedSaysSo) {
  const TemporaryFolder folder;
  const std::string whole = bytes_of(test::data("imports/gpt2.bin"));
  const auto refused = [&](const std::string& bytes, const std::string& why) {
    const auto path = put(folder / "x.bin", bytes);
    EXPECT_THAT(error_of(ErrorCode::data, [&] { LlmCFile file(path); }), testing::AllOf(HasSubstr("x.bin: expected"), HasSubstr(why)));
  };
  const auto with = [&](size_t at, i32 value) {
    std::string bytes = whole;
    std::memcpy(bytes.data() + 4 * at, &value, sizeof value);
    return bytes;
  };
  refused("", "a header of 1024 bytes, got a file of 0");
  refused(whole.substr(0, 1023), "got a file of 1023");
  refused(with(0, 20240327), "begins with the number 20240326, got 20240327");
  refused(with(1, 4), "version 3 (fp32) or 5 (bf16), got 4");
  refused(with(2, 0), "positions from 1 to 134217728 as integer 2 of the header (counted from 0), got 0");
  refused(with(3, -1), "a vocabulary from 1");
  refused(with(4, 1 << 30), "layers from 1 to 8192");
  refused(with(5, 5), "the width 12, got 5");
  refused(with(6, 2'000'000), "a width from 1 to 1048576");
  refused(with(7, 60), "a padded vocabulary from 61");
  refused(with(1, 5), "(2 layers of width 12, 61 tokens padded to 128, 16 positions, bf16), got 23104");
  refused(whole.substr(0, whole.size() - 1), "23104 bytes");
  refused(whole + "x", "got 23105");
}

// Changes single random bytes of a model file: each changed file is refused or is read without an access outside its data.
void survive_mutations(u64 seed, int count) {
  const TemporaryFolder folder;
  const std::string whole = bytes_of(test::data("imports/gpt2_bf16.bin"));
  u64 state = seed;
  const auto random = [&] { return (state = state * 6364136223846793005u + 1442695040888963407u) >> 33; };
  int refused = 0, read = 0;
  for (int i = 0; i < count; ++i) {
    std::string bytes = whole;
    bytes[i % 2 ? random() % 32 : random() % bytes.size()] = static_cast<char>(random());
    try {
      const LlmCFile file(put(folder / "x.bin", bytes));
      for (const TensorInfo& info : file.tensors()) all_of(file, info);
      ++read;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::data) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(read, 0);
}
TEST(LlmCFile, SurvivesAnyByte) { survive_mutations(1, 100); }
TEST(SoakLlmCFile, SurvivesAnyByte) { survive_mutations(2, 5000); }

}  // namespace
}  // namespace spillway::data::llm_c_file_test
