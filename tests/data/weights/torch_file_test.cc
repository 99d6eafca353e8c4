// Tests files of torch.save. Every tensor of tests/data/torch (made by tests/peers/torch_files.py) is read
// exactly, whatever its strides. Damaged or other files are refused by name, and no code in them is executed.
#include "data/weights/torch_file.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "data/safetensors/wide.h"
#include "data/torch/pickle.h"
#include "tests/data/support_files.h"
#include "tests/support/fixtures.h"

namespace spillway::data::torch_file_test {
namespace {

using namespace spillway::test;
using testing::HasSubstr;

const std::filesystem::path kFolder = "torch";

std::vector<double> all_of(const TorchFile& file, const TensorInfo& info, size_t piece) {
  std::vector<double> values(static_cast<size_t>(info.shape.elems()));
  for (size_t at = 0; at < values.size(); at += piece)
    file.read_wide(info, static_cast<i64>(at), std::span(values).subspan(at, std::min(piece, values.size() - at)));
  return values;
}

double number(const nlohmann::json& value) { return value.is_string() ? std::stod(value.get<std::string>()) : value.get<double>(); }

TEST(TorchFile, HoldsEveryTensorAsPytorchHasIt) {
  const TorchFile file(test::data(kFolder / "state.bin"));
  const auto want = nlohmann::json::parse(bytes_of(test::data(kFolder / "state.json")));
  size_t compared = 0;
  for (const auto& [name, tensor] : want.items()) {
    const TensorInfo* info = file.find(name);
    ASSERT_TRUE(info) << name;
    if (tensor["dtype"] == "int8") {
      EXPECT_EQ(info->foreign, "I8 [3]");
      continue;
    }
    EXPECT_EQ(info->shape, Shape(std::span<const i64>(tensor["shape"].get<std::vector<i64>>()))) << name;
    if (!is_floating(info->dtype)) {
      EXPECT_EQ(info->dtype, DType::int64);
      continue;
    }
    for (const size_t piece : {size_t{1}, size_t{5}, size_t{1} << 20}) {
      const std::vector<double> got = all_of(file, *info, piece);
      for (size_t i = 0; i < got.size(); ++i, ++compared)
        ASSERT_EQ(got[i], name == "big" ? static_cast<double>(i % 90 * 100 + i / 90) : number(tensor["values"][i])) << name << " " << i;
      if (piece == 1 && name == "big") break;
    }
  }
  EXPECT_EQ(file.tensors().size(), want.size());
  EXPECT_GT(compared, 9000u);
  // For a contiguous tensor, its stored bytes are compared with its numbers too.
  size_t in_one_piece = 0, others = 0;
  for (const TensorInfo& info : file.tensors()) {
    if (!info.foreign.empty() || !is_floating(info.dtype) || info.shape.elems() < 2) continue;
    const std::vector<double> values = all_of(file, info, 1 << 20);
    std::vector<std::byte> want_bytes(static_cast<size_t>(info.bytes())), got(want_bytes.size() - static_cast<size_t>(size_of(info.dtype)));
    narrow_stored(values, info.dtype, want_bytes);
    if (!file.read_bytes(info, 1, got)) {
      ++others;
      continue;
    }
    ++in_one_piece;
    EXPECT_TRUE(std::equal(got.begin(), got.end(), want_bytes.begin() + size_of(info.dtype))) << info.name;
  }
  EXPECT_GT(in_one_piece, 2u);
  EXPECT_GT(others, 1u);
  EXPECT_THAT(error_of(ErrorCode::data, [&] { all_of(file, *file.find("of_integers"), 1); }), HasSubstr("expected floating-point numbers"));
}

TEST(TorchFile, APickleThatAsksForMoreIsRefusedByNameAndNotRun) {
  EXPECT_THAT(error_of(ErrorCode::data, [&] { TorchFile file(test::data(kFolder / "asks.bin")); }),
              HasSubstr("asks.bin: the file refers to the Python object posix.system"));
  EXPECT_FALSE(std::filesystem::exists("asked"));
}

TEST(TorchFile, WhatIsNoneSaysSo) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& bytes, const char* why) {
    const auto path = put(folder / "x.bin", bytes);
    EXPECT_THAT(error_of(ErrorCode::data, [&] { TorchFile file(path); }), HasSubstr(why)) << bytes.size();
  };
  refused("", "zip archive");
  refused("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n", "Git LFS");
  refused(bytes_of(test::data(kFolder / "old.bin")), "1.6");
  const std::string whole = bytes_of(test::data(kFolder / "state.bin"));
  refused(whole.substr(0, whole.size() / 2), "torch.save");
  EXPECT_THAT(error_of(ErrorCode::data, [&] { TorchFile file(folder / "none.bin"); }), HasSubstr("none.bin"));
}

// The pickle in state.bin is not compressed, so the test can change it: to a tensor larger than its storage, and to a missing storage.
TEST(TorchFile, SizesAreCheckedAgainstTheStorage) {
  const TemporaryFolder folder;
  const std::string whole = bytes_of(test::data(kFolder / "state.bin"));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string bytes = whole;
    const size_t at = bytes.find(from);
    EXPECT_NE(at, bytes.npos);
    bytes.replace(at, from.size(), to);
    const auto path = put(folder / "x.bin", bytes);
    return error_of(ErrorCode::data, [&] {
      TorchFile file(path);
      all_of(file, file.tensors().front(), 1000);
    });
  };
  // BININT1 4, BININT1 6, TUPLE2 in the pickle is the shape of tensor "plain", whose storage has 24 elements.
  EXPECT_THAT(with("K\x04K\x06\x86", "K\x04K\x07\x86"), testing::AnyOf(HasSubstr("its storage of 24 elements"), HasSubstr("damaged")));
}

// Changes single random bytes of a torch.save file: each changed file is refused or is read without an access outside its data.
void survive_mutations(u64 seed, int count) {
  const TemporaryFolder folder;
  const std::string whole = bytes_of(test::data(kFolder / "state.bin"));
  u64 state = seed;
  const auto random = [&] { return (state = state * 6364136223846793005u + 1442695040888963407u) >> 33; };
  const size_t pickle = whole.find("data.pkl"), pickle_end = whole.find("PK\x07\x08", pickle);
  ASSERT_LT(pickle_end, whole.size());
  int refused = 0;
  for (int i = 0; i < count; ++i) {
    std::string bytes = whole;
    // Half of the changes hit the pickle, since most of the file is numbers, which may change freely.
    const size_t at = i % 2 ? pickle + random() % (pickle_end - pickle) : random() % bytes.size();
    bytes[at] = static_cast<char>(random());
    try {
      const TorchFile file(put(folder / "x.bin", bytes));
      for (const TensorInfo& info : file.tensors()) {
        if (info.foreign.empty() && is_floating(info.dtype) && info.shape.elems() < 100000) all_of(file, info, 4096);
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::data) << error.what();
      ++refused;
    }
    // The changed pickle is also parsed alone, since a checksum in the archive would refuse it before it is parsed.
    const auto raw = std::as_bytes(std::span(bytes)).subspan(pickle, pickle_end - pickle);
    try {
      const auto some = raw.subspan(raw.size() - (pickle_end - whole.find('\x80', pickle)));
      const Pickle alone({some.begin(), some.end()}, "x");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::data) << error.what();
    }
  }
  EXPECT_GT(refused, 0);
}
TEST(TorchFile, SurvivesAnyByte) { survive_mutations(1, 300); }
TEST(SoakTorchFile, SurvivesAnyByte) {
  for (u64 seed = 2; seed < 10; ++seed) survive_mutations(seed, 500);
}

}  // namespace
}  // namespace spillway::data::torch_file_test
