// Tests checkpoints with flipped bits and with truncated or missing files: every reader reports which file is damaged and where. --resume
// auto continues from the newest whole checkpoint, with the numbers of a run that was never stopped.
#include <gtest/gtest.h>
#include <signal.h>
#include <algorithm>

#include "tests/e2e/support_nvme_run.h"

namespace spillway::test::damaged_checkpoint_test {
namespace {

namespace fs = std::filesystem;

constexpr const char *kFirst = "run/checkpoints/step-00000002", *kBefore = "run/checkpoints/step-00000004",
                     *kNewest = "run/checkpoints/step-00000006";

Args to_step(int steps, const std::string& out, const Args& more = {}) {
  Args args =
      small_run(out, steps, "64MiB", {"--checkpoint-every", "2", "--keep", "3", "--lr-schedule", "constant", "--warmup-steps", "0"});
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

struct DamagedCheckpoint : testing::Test {
  Workplace at;
  DamagedCheckpoint() { at.write_text("text.txt", 60000); }

  void flip(const fs::path& file, size_t byte, int bit = 6) const {
    std::string bytes = at.read(file.string());
    ASSERT_LT(byte, bytes.size());
    bytes[byte] = static_cast<char>(bytes[byte] ^ 1 << bit);
    at.write(file.string(), bytes);
  }
  // the offset of the most significant byte of an f32 in the middle of the file
  size_t middle_of(const fs::path& file) const { return fs::file_size(at / file.string()) / 2 | 3; }

  void expect_says(const Finished& f, int status, std::initializer_list<std::string> words) const {
    EXPECT_EQ(f.status, status) << f.out << f.err;
    for (const std::string& word : words) EXPECT_TRUE(mentions(f.out + f.err, word)) << word << ": " << f.out << f.err;
  }
  // Trains to step 8 from the newest whole checkpoint, and checks that the numbers are those of an undisturbed run.
  void expect_goes_on(int from, const Args& more = {}) const {
    const Finished f = at.spillway(to_step(8, "run", more));
    expect_says(f, 0, {"is damaged", "continues at step " + std::to_string(from) + " of 8 from the last checkpoint that is not damaged"});
    EXPECT_EQ(numbers_of(at.metrics("run")), numbers_of(at.metrics("straight")));
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      const std::string name = std::string("/checkpoints/step-00000008/") + file;
      EXPECT_GT(at.read("straight" + name).size(), 100'000u);
      EXPECT_TRUE(at.read("run" + name) == at.read("straight" + name)) << file;
    }
    EXPECT_EQ(at.spillway({"inspect", "--verify", "run"}).status, 0);
  }
};
using DamagedCheckpointMore = DamagedCheckpoint;

TEST_F(DamagedCheckpoint, AFlippedBitAnywhereIsNamedByWhoeverReadsIt) {
  ASSERT_EQ(at.spillway(to_step(6, "run")).status, 0);
  expect_says(at.spillway({"inspect", "--verify", "run"}), 0, {std::string(kFirst) + ": whole", std::string(kNewest) + ": whole"});
  const std::string folder = std::string(kNewest) + "/";
  const std::string manifest = at.read(folder + "manifest.json");
  struct Case {
    std::string file;
    size_t byte;
    std::string place;  // the text by which the message names the damaged place
  };
  const std::vector<Case> cases = {{"model.safetensors", middle_of(folder + "model.safetensors"), "tensor"},
                                   {"model.safetensors", 9, "bytes 0 to 262144"},
                                   {"model.safetensors", fs::file_size(at / (folder + "model.safetensors")) - 1, "lm_head.weight"},
                                   {"optimizer.safetensors", middle_of(folder + "optimizer.safetensors"), ".exp_avg"},
                                   {"optimizer.safetensors", 2, "optimizer.safetensors"},
                                   {"config.json", 40, "config.json"},
                                   {"manifest.json", manifest.find("\"cursor\": ") + 10, "manifest.json"},
                                   {"manifest.json", manifest.find("\"manifest_crc32c\": ") + 22, "manifest.json"},
                                   {"manifest.json", manifest.find("manifest_crc32c"), "manifest.json"},
                                   {"manifest.json", manifest.find("\"format\": ") + 10, "manifest.json"}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.file + " at " + std::to_string(c.byte));
    const std::string whole = at.read(folder + c.file);
    flip(folder + c.file, c.byte, c.file == "manifest.json" ? 0 : 6);
    expect_says(at.spillway({"inspect", "--verify", kNewest}), 4, {"damaged", c.file, c.place});
    expect_says(at.spillway({"inspect", "--verify", "run"}), 4, {std::string(kBefore) + ": whole", std::string(kNewest) + ": damaged"});
    // Only readers that take the model from the checkpoint read its config.json.
    const bool trains = c.file != "config.json", infers = c.file != "optimizer.safetensors";
    if (trains) expect_says(at.spillway(to_step(8, "run", {"--resume", "must"})), 4, {c.file, "--resume auto"});
    if (infers) expect_says(at.spillway({"generate", "--model", kNewest, "--prompt", "a", "--max-tokens", "2"}), 4, {c.file});
    at.write(folder + c.file, whole);
    EXPECT_EQ(at.spillway({"inspect", "--verify", kNewest}).status, 0);
  }
}

TEST_F(DamagedCheckpoint, ResumeAutoGoesOnFromTheNewestWholeOne) {
  ASSERT_EQ(at.spillway(to_step(8, "straight")).status, 0);
  ASSERT_EQ(at.spillway(to_step(6, "run")).status, 0);
  flip(fs::path(kNewest) / "optimizer.safetensors", middle_of(fs::path(kNewest) / "optimizer.safetensors"));
  flip(fs::path(kBefore) / "manifest.json", at.read(std::string(kBefore) + "/manifest.json").find("\"tokens\": ") + 10, 0);
  expect_goes_on(2);
  EXPECT_TRUE(fs::exists(at / (std::string(kNewest) + ".damaged/optimizer.safetensors"))) << "kept, under another name";
  EXPECT_TRUE(fs::exists(at / (std::string(kBefore) + ".damaged/manifest.json")));
}

TEST_F(DamagedCheckpoint, FilesThatAreShortOrGone) {
  ASSERT_EQ(at.spillway(to_step(8, "straight")).status, 0);
  ASSERT_EQ(at.spillway(to_step(6, "run")).status, 0);
  const fs::path weights = at / (std::string(kNewest) + "/model.safetensors"),
                 state = at / (std::string(kBefore) + "/optimizer.safetensors");
  fs::resize_file(weights, fs::file_size(weights) - 4096);
  fs::remove(state);
  expect_says(at.spillway({"inspect", "--verify", "run"}), 4, {"it was saved with", "cannot open"});
  expect_says(at.spillway({"export", "run", "--out", "exported"}), 4, {"model.safetensors"});
  EXPECT_FALSE(fs::exists(at / "exported"));
  expect_goes_on(2);
}

TEST_F(DamagedCheckpoint, WithNoneThatIsWholeNothingIsTouched) {
  ASSERT_EQ(at.spillway(to_step(4, "run")).status, 0);
  const std::string metrics = at.read("run/metrics.jsonl");
  for (const char* folder : {kFirst, kBefore}) flip(fs::path(folder) / "model.safetensors", 70'000);
  expect_says(at.spillway(to_step(8, "run")), 4, {"2 checkpoints", "--out"});
  EXPECT_EQ(at.read("run/metrics.jsonl"), metrics);
  EXPECT_TRUE(fs::exists(at / kFirst) && fs::exists(at / kBefore));
}

TEST_F(DamagedCheckpointMore, OnTwoRanksToo) {
  const Args two{"--ranks", "2", "--zero-stage", "2"};
  ASSERT_EQ(at.spillway(to_step(8, "straight", two)).status, 0);
  ASSERT_EQ(at.spillway(to_step(6, "run", two)).status, 0);
  expect_says(at.spillway({"inspect", "--verify", "run"}), 0, {std::string(kNewest) + ": whole"});
  flip(fs::path(kNewest) / "model.safetensors", middle_of(fs::path(kNewest) / "model.safetensors"));
  expect_goes_on(4, two);
}

// Shows that a state on nvme is given up only for a checkpoint that can be read. The run was killed after a save of the same step.
TEST_F(DamagedCheckpointMore, TheStateOnNvmeIsNotGivenUpForIt) {
  const Args placed{"--place-parameters", "nvme", "--place-optimizer", "nvme", "--nvme", "scratch"};
  ASSERT_EQ(at.spillway(to_step(8, "straight", placed)).status, 0);
  const Finished killed = at.spillway_until(
      to_step(120, "run", placed), [&] { return fs::exists(at / kNewest); }, SIGKILL);
  ASSERT_EQ(killed.status, 128 + SIGKILL) << killed.err;
  ASSERT_FALSE(fs::is_empty(at / "scratch"));
  // Damages all checkpoints after the first, whether ahead of the state on nvme or of the same step.
  for (const auto& entry : fs::directory_iterator(at / "run/checkpoints"))
    if (entry.path().filename() != "step-00000002" && fs::exists(entry.path() / "manifest.json"))
      flip(fs::relative(entry.path(), at.path()) / "optimizer.safetensors", 70'000);
  const Finished f = at.spillway(to_step(120, "run", placed));
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_TRUE(mentions(f.err, "from the state on nvme") || mentions(f.err, "that is not damaged")) << f.err;
}

// Shows that a checkpoint without its manifest is neither ignored nor read unchecked: every reader needs the manifest.
TEST_F(DamagedCheckpoint, WithoutItsManifestOneIsDamaged) {
  ASSERT_EQ(at.spillway(to_step(8, "straight")).status, 0);
  ASSERT_EQ(at.spillway(to_step(6, "run")).status, 0);
  fs::remove(at / kNewest / "manifest.json");
  expect_says(at.spillway({"inspect", "--verify", "run"}), 4, {std::string(kBefore) + ": whole", std::string(kNewest) + ": damaged"});
  expect_says(at.spillway({"inspect", "--verify", kNewest}), 4, {"damaged"});
  expect_says(at.spillway(to_step(8, "run", {"--resume", "must"})), 4, {"manifest.json", "--resume auto"});
  for (const char* model : {kNewest, "run"})
    expect_says(at.spillway({"generate", "--model", model, "--prompt", "a", "--max-tokens", "2"}), 4, {"without manifest.json"});
  expect_goes_on(4);
  for (const char* folder : {kFirst, kBefore, kNewest, "run/checkpoints/step-00000008"}) fs::remove(at / folder / "manifest.json");
  expect_says(at.spillway(to_step(9, "run")), 4, {"[resume]", "none is intact"});
}

// Shows that a model folder with another tool's manifest.json is read like any other model.
TEST_F(DamagedCheckpoint, AForeignManifestSaysNothingOfAModel) {
  ASSERT_EQ(at.spillway(to_step(2, "run")).status, 0);
  ASSERT_EQ(at.spillway({"export", "run", "--out", "exported"}).status, 0);
  at.write("exported/manifest.json", R"({"checksums": {"model.safetensors": "sha256:00"}, "format": "of another tool"})");
  const Finished f = at.spillway({"generate", "--model", "exported", "--tokenizer", "bytes", "--prompt", "a", "--max-tokens", "2"});
  EXPECT_EQ(f.status, 0) << f.err;
}

// Shows that a half-removed checkpoint goes at the next start, even if no step is left: the process may have died in its last save.
TEST_F(DamagedCheckpoint, AHalfPrunedOneGoesAtTheNextStart) {
  ASSERT_EQ(at.spillway(to_step(4, "run")).status, 0);
  const std::string half = std::string(kFirst) + ".removed";
  fs::rename(at / kFirst, at / half);
  ASSERT_EQ(at.spillway(to_step(6, "run")).status, 0);
  EXPECT_FALSE(fs::exists(at / half));
  fs::rename(at / kBefore, at / half);
  ASSERT_EQ(at.spillway(to_step(6, "run")).status, 0);
  EXPECT_FALSE(fs::exists(at / half));
  EXPECT_TRUE(fs::exists(at / kNewest));
}

TEST_F(DamagedCheckpoint, WhoMayReadTheRunMayReadItsCheckpoints) {
  fs::create_directory(at / "run");
  fs::permissions(at / "run", fs::perms(0750));
  ASSERT_EQ(at.spillway(to_step(2, "run")).status, 0);
  const auto mode = [&](const std::string& name) { return static_cast<int>(fs::status(at / (std::string(kFirst) + name)).permissions()); };
  EXPECT_EQ(mode(""), 0750);
  for (const char* file : {"/model.safetensors", "/optimizer.safetensors", "/manifest.json", "/config.json"})
    EXPECT_EQ(mode(file), 0640) << file;
}

TEST_F(DamagedCheckpoint, ATrailingSlashOrALinkIsTheSameCheckpoint) {
  ASSERT_EQ(at.spillway(to_step(4, "run")).status, 0);
  fs::create_symlink(kFirst, at / "link");
  for (const std::string& name : {std::string(kFirst), std::string(kFirst) + "/", std::string(kFirst) + "/.", std::string("link")}) {
    Args other = to_step(6, "other", {"--resume", name});
    *(std::find(other.begin(), other.end(), "--learning-rate") + 1) = "2e-3";
    expect_says(at.spillway(other), 2, {"that change numbers", "learning_rate"});
  }
}

}  // namespace
}  // namespace spillway::test::damaged_checkpoint_test
