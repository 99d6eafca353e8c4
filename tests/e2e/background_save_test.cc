// Tests, as a user sees them, saves in the background of training: a kill in the middle of a save, a disk that fills during a save, saves
// from every tier, restarts that put the state into another tier, and the messages about them.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>

#include <chrono>
#include <fstream>
#include <random>
#include <regex>

#include "tests/e2e/support_program.h"

namespace spillway::test::background_save_test {
namespace {

namespace fs = std::filesystem;

constexpr int kSteps = 12;

// Returns a command line that saves every `every` steps. `optimizer` is the tier of the optimizer state and of the weights; if it is nvme,
// the weights are in host memory.
Args saving(const std::string& out, const std::string& every, const std::string& optimizer, const std::string& overlap = "none") {
  return small_run(
      out, kSteps, "64MiB",
      {"--checkpoint-every", every, "--keep", "20", "--nvme", "scratch", "--place-parameters", optimizer == "nvme" ? "host" : optimizer,
       "--place-gradients", "device", "--place-optimizer", optimizer, "--optimizer-overlap", overlap});
}

struct BackgroundSave : testing::Test {
  const Workplace at;
  BackgroundSave() { at.write_text("text.txt", 60000); }

  std::string checkpoint(const std::string& out, int step) const {
    std::string number = std::to_string(step);
    return out + "/checkpoints/step-" + std::string(8 - number.size(), '0') + number;
  }
  void expect_same_checkpoint(const std::string& got, const std::string& want) const {
    for (const char* file : {"/model.safetensors", "/optimizer.safetensors"}) {
      EXPECT_GT(at.read(want + file).size(), 100'000u) << want;
      EXPECT_TRUE(at.read(got + file) == at.read(want + file)) << got << file;
    }
  }
  bool partial(const std::string& out) const {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(at / (out + "/checkpoints"), none)) {
      if (mentions(entry.path().filename().string(), ".partial-")) return true;
    }
    return false;
  }
};
using BackgroundSaveMore = BackgroundSave;

// Shows that saves from every tier are the same. No step runs beside the last save. A run that continues from another one has the same
// numbers.
TEST_F(BackgroundSaveMore, IsTheSameFromEveryTierOntoAnother) {
  for (const auto& [optimizer, overlap] : {std::pair("device", "none"), {"host", "forward"}, {"nvme", "none"}, {"nvme", "backward"}}) {
    const std::string out = std::string("run-") + optimizer + "-" + overlap;
    const Finished f = at.spillway(saving(out, "1", optimizer, overlap));
    ASSERT_EQ(f.status, 0) << f.err;
    EXPECT_EQ(std::distance(fs::directory_iterator(at / (out + "/checkpoints")), {}), kSteps);
    const std::regex said("saved [^ ]*step-000000(\\d\\d): blocked [0-9.]+ [a-z]+, durable after [0-9.]+ [a-z]+");
    EXPECT_EQ(std::distance(std::sregex_iterator(f.err.begin(), f.err.end(), said), {}), kSteps) << f.err;
    for (const int step : {1, 7, kSteps}) expect_same_checkpoint(checkpoint(out, step), checkpoint("run-device-none", step));
  }
  // Each run is continued from its next-to-last checkpoint, with its state on another tier.
  for (const auto& [from, onto] : {std::pair("nvme-none", "host"), {"device-none", "nvme"}, {"host-forward", "device"}}) {
    const std::string run = std::string("run-") + from, out = std::string("from-") + from;
    fs::create_directory(at / out);
    fs::copy(at / run, at / out, fs::copy_options::recursive);
    for (int step = 5; step <= kSteps; ++step) fs::remove_all(at / checkpoint(out, step));
    const Finished f = at.spillway(saving(out, "100", onto));
    EXPECT_TRUE(f.status == 0 && mentions(f.err, "continues at step 4 of")) << f.err;
    EXPECT_EQ(numbers_of(at.metrics(out)), numbers_of(at.metrics("run-device-none")));
    expect_same_checkpoint(checkpoint(out, kSteps), checkpoint("run-device-none", kSteps));
  }
}

// Shows that a kill in the middle of a save leaves the last good checkpoint. Each step has a save beside it, so a kill meets a save
// whenever the folder of a partial checkpoint exists.
TEST_F(BackgroundSave, KilledInTheMiddleLeavesTheLastGoodOne) {
  ASSERT_EQ(at.spillway(saving("straight", "1", "device")).status, 0);
  constexpr int kKills = 6;
  std::mt19937 random(5);
  for (const char* optimizer : {"device", "host", "nvme"}) {
    const std::string out = std::string("killed-") + optimizer;
    for (int kills = 0;; ++kills) {
      size_t looks = random() % 40;
      const auto in_the_middle = [&] { return at.metrics(out).size() >= 2 && partial(out) && looks-- == 0; };
      const Finished f = kills < kKills ? at.spillway_until(saving(out, "1", optimizer), in_the_middle, SIGKILL)
                                        : at.spillway(saving(out, "1", optimizer));
      if (f.status == 0) break;
      ASSERT_EQ(f.status, 128 + SIGKILL) << f.err;
    }
    EXPECT_FALSE(partial(out)) << "what the dead left is removed";
    EXPECT_EQ(numbers_of(at.metrics(out)), numbers_of(at.metrics("straight")));
    for (int step = 1; step <= kSteps; ++step) {
      if (fs::exists(at / checkpoint(out, step))) expect_same_checkpoint(checkpoint(out, step), checkpoint("straight", step));
    }
    expect_same_checkpoint(checkpoint(out, kSteps), checkpoint("straight", kSteps));
  }
}

// Fills the disk of the checkpoints from some step on, and makes room again before the end. Saves must fail with a warning only.
TEST_F(BackgroundSaveMore, AFullDiskIsAWarningAndTrainingGoesOn) {
  for (const char* optimizer : {"host", "nvme"}) {
    const std::string run = std::string("run-") + optimizer, disk = run + "/checkpoints";
    fs::create_directories(at / disk);
    if (::mount("tmpfs", (at / disk).c_str(), "tmpfs", 0, "size=32m") != 0) GTEST_SKIP() << "mounting a tmpfs is not permitted";
    Args args = saving(run, "2", optimizer);
    *std::find(args.begin(), args.end(), "20") = "1";
    *std::find(args.begin(), args.end(), std::to_string(kSteps)) = "200";
    const fs::path filler = at / (disk + "/filler");
    const std::string some(1 << 20, 'x');
    bool failed = false;
    const Finished f = at.spillway_until(
        args,
        [&] {
          if (failed || at.metrics(run).size() < 4) return false;
          failed = mentions(at.read("stderr.txt"), "was not saved");
          if (failed) {
            fs::remove(filler);
          } else {  // fills the disk again and again, because a removed checkpoint frees space
            std::ofstream more(filler, std::ios::app);
            while (more.write(some.data(), 1 << 20).flush()) {
            }
          }
          return false;
        },
        SIGKILL);
    EXPECT_EQ(f.status, 0) << f.err;
    EXPECT_TRUE(mentions(f.err, "was not saved") && mentions(f.err, "the disk is full")) << f.err;
    EXPECT_TRUE(fs::exists(at / checkpoint(run, 200)));
    EXPECT_FALSE(partial(run));
    ::umount((at / disk).c_str());
  }
}

}  // namespace
}  // namespace spillway::test::background_save_test
