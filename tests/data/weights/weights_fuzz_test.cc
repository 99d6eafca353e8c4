// Fuzzes checkpoints that PyTorch and DeepSpeed wrote. In their pickles instructions are left out, swapped
// or repeated, numbers become extreme, and values are shared or contain themselves. Each file is refused
// with Error(data) or read without an access outside its data, at a cost in proportion to its bytes.
#include <gtest/gtest.h>

#include <algorithm>

#include "data/torch/torch_archive.h"
#include "data/weights/weight_folder.h"
#include "tests/data/support_files.h"
#include "tests/data/weights/support_pickles.h"
#include "tests/support/fixtures.h"

namespace spillway::data::weights_fuzz_test {
namespace {

namespace fs = std::filesystem;
using namespace spillway::test;
using namespace spillway::test::pickles;

// Holds a torch.save file split into its parts.
struct TorchParts {
  std::vector<std::string> pickle;  // the instructions of the file's pickle
  Members storages;
  explicit TorchParts(const fs::path& path) {
    const TorchArchive archive(path);
    const auto text = [](const std::vector<std::byte>& bytes) {
      return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    };
    pickle = instructions(text(archive.pickle()));
    for (int key = 0;; ++key) {
      try {
        const auto member = archive.storage(std::to_string(key));
        std::vector<std::byte> bytes(static_cast<size_t>(member.bytes));
        archive.read(member, 0, bytes);
        storages.emplace_back(std::to_string(key), text(bytes));
      } catch (const Error&) {
        break;
      }
    }
  }
  std::string with(const std::string& other_pickle) const {
    Members members{{"archive/data.pkl", other_pickle}};
    for (const auto& [key, bytes] : storages) members.emplace_back("archive/data/" + key, bytes);
    return archive(members);
  }
};

struct Outcome {
  int read = 0, refused = 0;
  void of(const fs::path& weights) {
    try {
      const WeightFolder folder(weights);
      std::vector<double> values(1000);
      for (const std::string& name : folder.names()) {
        const TensorInfo& info = *folder.find(name);
        const auto count = static_cast<size_t>(std::min<i64>(info.shape.elems(), 1000));
        if (info.foreign.empty() && is_floating(info.dtype)) folder.read(name, 0, std::span(values).first(count));
      }
      ++read;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::data) << error.what();
      ++refused;
    }
  }
};

void survive_torch_files(u64 seed, int count) {
  Random random{seed};
  const TorchParts parts(test::data("torch/state.bin"));
  const TemporaryFolder folder;
  put(folder / "x.bin", parts.with(joined(parts.pickle)));
  Outcome outcome;
  outcome.of(folder / "x.bin");
  ASSERT_EQ(outcome.read, 1);
  for (int i = 0; i < count; ++i) {
    put(folder / "x.bin", parts.with(mutated(parts.pickle, random)));
    outcome.of(folder / "x.bin");
  }
  EXPECT_GT(outcome.read, count / 50);
  EXPECT_GT(outcome.refused, count / 20);
}

void survive_distributed(u64 seed, int count) {
  Random random{seed};
  const TemporaryFolder at;
  const fs::path folder = at / "saved";
  fs::copy(test::data("torch/distributed"), folder);
  const std::vector<std::string> metadata = instructions(bytes_of(folder / ".metadata"));
  Outcome outcome;
  for (int i = 0; i < count; ++i) {
    fs::remove(folder / ".metadata");
    put(folder / ".metadata", mutated(metadata, random));
    outcome.of(folder);
  }
  EXPECT_GT(outcome.read, count / 50);
  EXPECT_GT(outcome.refused, count / 20);
}

void survive_deepspeed(u64 seed, int count) {
  Random random{seed};
  Outcome outcome;
  for (const char* way : {"stage1", "stage3"}) {
    const TemporaryFolder at;
    const fs::path folder = at / "saved", step = folder / "global_step3";
    fs::copy(test::data(fs::path("deepspeed") / way), folder, fs::copy_options::recursive);
    std::vector<std::pair<fs::path, TorchParts>> files;
    for (const auto& entry : fs::directory_iterator(step)) {
      if (entry.path().extension() == ".pt") files.emplace_back(entry.path(), TorchParts(entry.path()));
    }
    std::ranges::sort(files, {}, &std::pair<fs::path, TorchParts>::first);
    for (int i = 0; i < count / 2; ++i) {
      const auto& [path, parts] = files[random(files.size())];
      fs::remove(path);
      put(path, parts.with(mutated(parts.pickle, random)));
      outcome.of(folder);
      put(path, parts.with(joined(parts.pickle)));
    }
  }
  EXPECT_GT(outcome.read, count / 50);
  EXPECT_GT(outcome.refused, count / 20);
}

TEST(WeightsFuzz, TorchFilesOfAnyInstructions) { survive_torch_files(1, 200); }
TEST(WeightsFuzz, DistributedCheckpointsOfAnyInstructions) { survive_distributed(1, 200); }
TEST(WeightsFuzz, DeepSpeedCheckpointsOfAnyInstructions) { survive_deepspeed(1, 100); }
TEST(SoakWeightsFuzz, TorchFilesOfAnyInstructions) { survive_torch_files(2, 100'000); }
TEST(SoakWeightsFuzz, DistributedCheckpointsOfAnyInstructions) { survive_distributed(2, 100'000); }
TEST(SoakWeightsFuzz, DeepSpeedCheckpointsOfAnyInstructions) { survive_deepspeed(2, 100'000); }

}  // namespace
}  // namespace spillway::data::weights_fuzz_test
