// Tests checkpoints written by DeepSpeed (made by tests/peers/deepspeed_checkpoints.py). Every weight and every optimizer array equals the
// result of DeepSpeed's own conversion to the bit, whatever part of it is read. Missing, mixed, damaged or unsupported checkpoints are
// refused by name.
#include "data/weights/zero_checkpoint.h"

#include <gmock/gmock.h>

#include "data/weights/weight_folder.h"
#include "data/weights/zero_files.h"
#include "tests/data/support_files.h"
#include "tests/support/fixtures.h"

namespace spillway::data::zero_checkpoint_test {
namespace {

namespace fs = std::filesystem;
using namespace spillway::test;
using testing::HasSubstr;

const fs::path kFolder = "deepspeed";
constexpr const char* kWays[] = {"stage1", "stage2", "stage3", "universal"};

struct Random {
  u64 state;
  u64 operator()(u64 below) { return ((state = state * 6364136223846793005u + 1442695040888963407u) >> 33) % below; }
};

class ZeroCheckpointRead : public testing::TestWithParam<const char*> {};

TEST_P(ZeroCheckpointRead, HoldsWhatDeepSpeedsOwnConversionMakesOfIt) {
  const fs::path folder = test::data(kFolder / GetParam());
  const ZeroCheckpoint checkpoint(folder);
  const SafetensorsReader expected(folder / "expected.safetensors");
  EXPECT_THAT(checkpoint.arrays(), testing::ElementsAre("exp_avg", "exp_avg_sq"));
  Random random{7};
  i64 compared = 0;
  for (const TensorInfo& want : expected.tensors()) {
    const size_t dot = want.name.rfind(".exp_avg");
    const std::string name = want.name.substr(0, dot), array = dot == want.name.npos ? "" : want.name.substr(dot + 1);
    const TensorInfo* info = checkpoint.find(name);
    ASSERT_TRUE(info) << name;
    EXPECT_EQ(info->dtype, DType::f32);
    ASSERT_EQ(info->shape.elems(), want.shape.elems()) << name;
    if (array.empty() && want.shape.rank() == info->shape.rank()) {
      EXPECT_EQ(info->shape, want.shape) << name;
    }
    const auto elems = static_cast<size_t>(want.shape.elems());
    std::vector<double> whole(elems), got(elems);
    expected.read_wide(want, 0, whole);
    const auto read = [&](size_t begin, size_t count) {
      const auto some = std::span(got).subspan(begin, count);
      array.empty() ? checkpoint.read_wide(*info, static_cast<i64>(begin), some)
                    : checkpoint.read_array(*info, array, static_cast<i64>(begin), some);
    };
    read(0, elems);
    EXPECT_EQ(got, whole) << want.name;
    for (int piece = 0; piece < 5; ++piece) {
      const size_t begin = random(elems), count = 1 + random(elems - begin);
      std::ranges::fill(got, -1);
      read(begin, count);
      for (size_t i = 0; i < elems; ++i)
        ASSERT_EQ(got[i], i < begin || i >= begin + count ? -1 : whole[i]) << want.name << " " << begin << " " << i;
    }
    compared += want.shape.elems();
  }
  EXPECT_EQ(compared, 3 * 2832);  // the number of compared elements of weights; the last rank's shard ends within a parameter
  const TensorInfo *head = checkpoint.find("lm_head.weight"), *embedding = checkpoint.find("transformer.wte.weight");
  ASSERT_TRUE(head);
  std::vector<double> of_head(static_cast<size_t>(head->shape.elems())), of_embedding(of_head);
  checkpoint.read_wide(*head, 0, of_head);
  checkpoint.read_wide(*embedding, 0, of_embedding);
  EXPECT_EQ(of_head, of_embedding);
  EXPECT_EQ(WeightFolder(folder).names().size(), checkpoint.tensors().size());
}

TEST_P(ZeroCheckpointRead, KnowsWhereTheRunStood) {
  const ZeroCheckpoint::Standing standing = ZeroCheckpoint(test::data(kFolder / GetParam())).standing();
  EXPECT_EQ(standing.steps, 3);
  EXPECT_EQ(standing.updates, 3);
  EXPECT_EQ(standing.samples, 12);
  EXPECT_FALSE(standing.loss_scale);  // training in fp32 has no loss scale
  const bool universal = GetParam() == std::string("universal");
  EXPECT_EQ(standing.stage, universal ? 0 : GetParam()[5] - '0');
  EXPECT_EQ(standing.ranks, universal ? 0 : 2);
  EXPECT_THAT(standing.version, testing::StartsWith("0."));
}

INSTANTIATE_TEST_SUITE_P(Ways, ZeroCheckpointRead, testing::ValuesIn(kWays), [](const auto& way) { return std::string(way.param); });

// Copies a checkpoint, so that a test can damage the copy.
struct Copy {
  TemporaryFolder at;
  fs::path folder = at / "saved", step = folder / "global_step3";
  explicit Copy(const std::string& way) { fs::copy(test::data(kFolder / way), folder, fs::copy_options::recursive); }
  std::string refusal(ErrorCode code = ErrorCode::data) const {
    return error_of(code, [&] { ZeroCheckpoint checkpoint(folder); });
  }
  void write(const fs::path& path, const std::string& bytes) const {
    fs::remove(path);
    put(path, bytes);
  }
};

constexpr const char *kSecond = "zero_pp_rank_1_mp_rank_00_optim_states.pt", *kFirst = "zero_pp_rank_0_mp_rank_00_optim_states.pt";

TEST(ZeroCheckpoint, FilesThatAreMissingAreNamed) {
  {
    const Copy copy("stage1");
    fs::remove(copy.step / kSecond);
    EXPECT_THAT(copy.refusal(), HasSubstr("2 data-parallel ranks, but there are 1 files"));
  }
  {
    const Copy copy("stage1");
    fs::remove(copy.step / kFirst);
    EXPECT_THAT(copy.refusal(), HasSubstr("of ranks 0 to 1, but the file of rank 0 is missing"));
    fs::remove(copy.step / kSecond);
    EXPECT_THAT(copy.refusal(), HasSubstr("saved without ZeRO (stage 0)"));
  }
  {
    const Copy copy("stage3");
    fs::remove(copy.step / "zero_pp_rank_0_mp_rank_00_model_states.pt");
    EXPECT_THAT(copy.refusal(),
                HasSubstr("zero_pp_rank_<n>_mp_rank_00_model_states.pt of ranks 0 to 1, but the file of rank 0 is missing"));
  }
  {
    const Copy copy("universal");
    fs::remove_all(copy.folder / "zero/transformer.wpe.weight/fp32.pt");
    EXPECT_THAT(copy.refusal(), HasSubstr("fp32.pt"));
  }
}

TEST(ZeroCheckpoint, FilesOfTwoSavesAreNotMixed) {
  const Copy copy("stage1");
  fs::copy_file(test::data(kFolder / "stage3/global_step3" / kSecond), copy.step / kSecond, fs::copy_options::overwrite_existing);
  EXPECT_THAT(copy.refusal(), HasSubstr("the first rank's file"));
  fs::copy_file(test::data(kFolder / "stage2/global_step3/mp_rank_00_model_states.pt"), copy.step / "mp_rank_00_model_states.pt",
                fs::copy_options::overwrite_existing);
  fs::copy_file(test::data(kFolder / "stage1/global_step3" / kSecond), copy.step / kSecond, fs::copy_options::overwrite_existing);
  EXPECT_THAT(copy.refusal(), HasSubstr("expected 2 parameter groups"));
}

// A file with another parameter's data is refused. DeepSpeed 0.19's own conversion mixes up parameters like this for stage 2 with
// round_robin_gradients.
TEST(ZeroCheckpoint, OneParameterIsNotTakenForAnother) {
  const Copy copy("universal");
  const fs::path one = copy.folder / "zero/transformer.h.0.ln_1.weight", other = copy.folder / "zero/transformer.ln_f.bias";
  fs::rename(one, copy.folder / "kept");
  fs::rename(other, one);
  fs::rename(copy.folder / "kept", other);
  EXPECT_THAT(copy.refusal(), HasSubstr("of \"transformer.h.0.ln_1.weight\" is"));
  EXPECT_THAT(copy.refusal(), HasSubstr("have a layout that this program does not know"));
}

TEST(ZeroCheckpoint, WaysOfSavingThatAreNotReadAreNamedWithWhatThereIs) {
  const auto with = [](const std::string& name) {
    const Copy copy("stage1");
    put(copy.step / name, "x");
    return copy.refusal();
  };
  EXPECT_THAT(with("layer_00-model_00-model_states.pt"),
              HasSubstr("layer by layer: convert the checkpoint with DeepSpeed's ds_to_universal"));
  EXPECT_THAT(with("mp_rank_01_model_states.pt"),
              HasSubstr("split over tensor-parallel ranks: convert the checkpoint with DeepSpeed's ds_to_universal"));
  EXPECT_THAT(with("zero_pp_rank_0_mp_rank_01_optim_states.pt"), HasSubstr("split over tensor-parallel ranks"));
  EXPECT_THAT(with("layer_0_expert_0_mp_rank_00_model_states.pt"), HasSubstr("layer by layer"));
  EXPECT_THAT(with("expp_rank_0_mp_rank_00_optim_states.pt"), HasSubstr("mixture-of-experts"));
}

TEST(ZeroCheckpoint, LatestNamesAFolderBesideIt) {
  for (const auto& [text, why] :
       {std::pair("../stage1", "got \"../stage1\""), {"", "got \"\""}, {"global_step4", "*_model_states.pt: is the copy complete?"}}) {
    const Copy copy("stage1");
    copy.write(copy.folder / "latest", text);
    EXPECT_THAT(copy.refusal(), HasSubstr(why));
  }
  const Copy copy("stage1");
  EXPECT_TRUE(is_zero_checkpoint(copy.folder));
  EXPECT_TRUE(is_zero_checkpoint(copy.step));
  EXPECT_FALSE(is_zero_checkpoint(copy.at.path()));
  EXPECT_EQ(ZeroCheckpoint(copy.step).tensors().size(), ZeroCheckpoint(copy.folder).tensors().size());
}

TEST(ZeroCheckpoint, APickleThatAsksForMoreIsRefusedByNameAndNotRun) {
  const Copy copy("stage1");
  copy.write(copy.step / kSecond, bytes_of(test::data("torch/asks.bin")));
  EXPECT_THAT(copy.refusal(), HasSubstr("posix.system"));
  EXPECT_FALSE(fs::exists("asked"));
}

// Changes single random bytes of a checkpoint's files: each is refused or is read without an access outside its data.
void survive_mutations(const std::string& way, u64 seed, int count) {
  const Copy copy(way);
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(copy.folder)) {
    if (entry.path().extension() == ".pt") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  Random random{seed};
  int refused = 0;
  for (int i = 0; i < count; ++i) {
    const fs::path& file = files[random(files.size())];
    const std::string whole = bytes_of(file);
    const size_t pickle = whole.find("data.pkl"), pickle_end = std::min(whole.find("PK\x07\x08", pickle), whole.size());
    std::string bytes = whole;
    bytes[i % 2 ? pickle + random(pickle_end - pickle) : random(bytes.size())] = static_cast<char>(random(256));
    copy.write(file, bytes);
    try {
      const ZeroCheckpoint checkpoint(copy.folder);
      for (const TensorInfo& info : checkpoint.tensors()) {
        std::vector<double> values(static_cast<size_t>(std::min<i64>(info.shape.elems(), 100000)));
        if (info.foreign.empty() && is_floating(info.dtype)) checkpoint.read_wide(info, 0, values);
        for (const std::string& array : checkpoint.arrays()) {
          if (checkpoint.has_array(info, array)) checkpoint.read_array(info, array, 0, values);
        }
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::data) << error.what();
      ++refused;
    }
    copy.write(file, whole);
  }
  EXPECT_GT(refused, count / 20);
}

TEST(ZeroCheckpoint, DamagedBytesNeverLeaveTheFile) {
  for (const char* way : kWays) survive_mutations(way, 1, 60);
}
TEST(SoakZeroCheckpoint, DamagedBytesNeverLeaveTheFile) {
  for (const char* way : kWays) survive_mutations(way, 2, 1500);
}

}  // namespace
}  // namespace spillway::data::zero_checkpoint_test
