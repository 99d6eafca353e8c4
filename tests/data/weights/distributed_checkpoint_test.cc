// Tests reading a torch.distributed.checkpoint of two ranks (made by tests/peers/distributed_checkpoint.py). Every weight is read
// exactly, however it was sharded; optimizer state is left out. Inconsistent files are refused by name, and no code in them is executed.
#include "data/weights/distributed_checkpoint.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "data/weights/weight_folder.h"
#include "tests/data/support_files.h"
#include "tests/support/fixtures.h"

namespace spillway::data::distributed_checkpoint_test {
namespace {

namespace fs = std::filesystem;
using namespace spillway::test;
using testing::HasSubstr;

const fs::path kFolder = "torch/distributed";

TEST(DistributedCheckpoint, HoldsEveryTensorHoweverItWasCut) {
  const DistributedCheckpoint checkpoint(test::data(kFolder));
  const auto want = nlohmann::json::parse(bytes_of(test::data(kFolder / "expected.json")));
  size_t compared = 0;
  for (const auto& [name, tensor] : want.items()) {
    const TensorInfo* info = checkpoint.find(name);
    ASSERT_TRUE(info) << name;
    EXPECT_EQ(info->shape, Shape(std::span<const i64>(tensor["shape"].get<std::vector<i64>>()))) << name;
    if (name == "counted") {
      EXPECT_EQ(info->dtype, DType::int64);
      continue;
    }
    const auto values = tensor["values"].get<std::vector<double>>();
    for (size_t begin = 0; begin < values.size(); ++begin) {
      for (size_t end = begin + 1; end <= values.size(); ++end, ++compared) {
        std::vector<double> got(end - begin);
        checkpoint.read_wide(*info, static_cast<i64>(begin), got);
        ASSERT_EQ(got, std::vector(values.begin() + static_cast<std::ptrdiff_t>(begin), values.begin() + static_cast<std::ptrdiff_t>(end)))
            << name << " " << begin;
      }
    }
  }
  EXPECT_EQ(checkpoint.tensors().size(), want.size()) << "the optimizer's are no weights";
  EXPECT_GT(compared, 900u);
  EXPECT_EQ(checkpoint.find("whole.weight")->dtype, DType::bf16);
  EXPECT_THAT(error_of(ErrorCode::data,
                       [&] {
                         double value = 0;
                         checkpoint.read_wide(*checkpoint.find("counted"), 0, std::span(&value, 1));
                       }),
              HasSubstr("expected floating-point numbers"));
}

TEST(DistributedCheckpoint, IsAFolderOfWeightsWhereTransformersPutsIt) {
  const TemporaryFolder at;
  EXPECT_FALSE(has_weights(at.path()));
  fs::copy(test::data(kFolder), at / "pytorch_model_fsdp_0", fs::copy_options::recursive);
  EXPECT_TRUE(has_weights(at.path()));
  EXPECT_EQ(WeightFolder(at.path()).names().size(), 7u);
  EXPECT_EQ(WeightFolder(at / "pytorch_model_fsdp_0").names().size(), 7u);
}

struct Copied {
  TemporaryFolder at;
  fs::path folder = at / "saved";
  Copied() { fs::copy(test::data(kFolder), folder, fs::copy_options::recursive); }
  std::string refusal() const {
    return error_of(ErrorCode::data, [&] { DistributedCheckpoint checkpoint(folder); });
  }
  void write(const std::string& name, const std::string& bytes) const {
    fs::remove(folder / name);
    put(folder / name, bytes);
  }
  // Replaces the first occurrence of `from` in the checkpoint's .metadata by `to`.
  void replace(const std::string& from, const std::string& to) const {
    std::string bytes = bytes_of(folder / ".metadata");
    const size_t found = bytes.find(from);
    ASSERT_NE(found, bytes.npos) << from;
    bytes.replace(found, from.size(), to);
    write(".metadata", bytes);
  }
};

TEST(DistributedCheckpoint, WhatDoesNotFitTogetherIsRefusedByName) {
  {
    const Copied copy;
    fs::remove(copy.folder / "__1_0.distcp");
    EXPECT_THAT(copy.refusal(), HasSubstr("__1_0.distcp"));
    copy.write("__1_0.distcp", bytes_of(test::data(kFolder / "__1_0.distcp")).substr(0, 3000));
    EXPECT_THAT(copy.refusal(), HasSubstr("3000"));
    copy.write("__1_0.distcp", bytes_of(test::data(kFolder / "__0_0.distcp")) + std::string(9000, ' '));
    EXPECT_THAT(copy.refusal(), testing::AnyOf(HasSubstr("expected the block of"), HasSubstr("torch.save")));
  }
  const auto with = [](const std::string& from, const std::string& to) {
    const Copied copy;
    copy.replace(from, to);
    return copy.refusal();
  };
  EXPECT_THAT(with("__0_0.distcp", "../_0.distcp"), HasSubstr("got \"../_0.distcp\""));
  EXPECT_THAT(with("torch.distributed.checkpoint.metadata", "hacks.distributed.checkpoint.metadata"),
              HasSubstr("hacks.distributed.checkpoint.metadata.Metadata"));
  // The tensor columns.weight has shape [4, 6] and is stored as two blocks of three columns.
  EXPECT_THAT(with(std::string("K\x04K\x06\x86", 5), std::string("K\x04K\x07\x86", 5)),
              testing::AnyOf(HasSubstr("leave a gap"), HasSubstr("its blocks hold")));
  const Copied copy;
  copy.write(".metadata", "");
  EXPECT_THAT(copy.refusal(), HasSubstr(".metadata"));
}

void survive_mutations(u64 seed, int count) {
  const Copied copy;
  const std::string names[] = {".metadata", "__0_0.distcp", "__1_0.distcp"};
  u64 state = seed;
  const auto random = [&](u64 below) { return ((state = state * 6364136223846793005u + 1442695040888963407u) >> 33) % below; };
  int refused = 0;
  for (int i = 0; i < count; ++i) {
    const std::string name = names[i % 2 ? 0 : random(3)], whole = bytes_of(copy.folder / name);
    std::string bytes = whole;
    bytes[random(bytes.size())] = static_cast<char>(random(256));
    copy.write(name, bytes);
    try {
      const DistributedCheckpoint checkpoint(copy.folder);
      for (const TensorInfo& info : checkpoint.tensors()) {
        std::vector<double> values(static_cast<size_t>(std::min<i64>(info.shape.elems(), 100000)));
        if (info.foreign.empty() && is_floating(info.dtype)) checkpoint.read_wide(info, 0, values);
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::data) << error.what();
      ++refused;
    }
    copy.write(name, whole);
  }
  EXPECT_GT(refused, count / 20);
}

TEST(DistributedCheckpoint, DamagedBytesNeverLeaveTheFile) { survive_mutations(1, 200); }
TEST(SoakDistributedCheckpoint, DamagedBytesNeverLeaveTheFile) { survive_mutations(2, 5000); }

}  // namespace
}  // namespace spillway::data::distributed_checkpoint_test
