// train --rehearse: says what it found, leaves nothing, and catches what is planted in each of its phases.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <atomic>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/e2e/support_program.h"

namespace spillway::test::rehearse_test {
namespace {

namespace fs = std::filesystem;

struct Rehearse : testing::Test {
  Workplace at;
  Rehearse() { at.write_text("text.txt", 60000); }

  static Args rehearsal(const Args& more = {}) {
    Args args = {"train",   "--rehearse", "--model",         "gpt2-tiny", "--data",        "text.txt", "--sequence-length", "64",
                 "--steps", "100000",     "--device-memory", "64MiB",     "--host-memory", "64MiB",    "--threads",         "1",
                 "--out",   "run"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  void expect_nothing_left() const {
    EXPECT_FALSE(fs::exists(at / "run"));
    EXPECT_FALSE(fs::exists(at / "run.rehearsal"));
    if (fs::exists(at / "scratch")) {
      EXPECT_TRUE(fs::is_empty(at / "scratch"));
    }
  }
  void expect_caught(const Finished& f, int status, const std::string& phase) const {
    EXPECT_EQ(f.status, status) << f.err;
    EXPECT_TRUE(mentions(f.err, "[rehearse] " + phase)) << f.err;
    expect_nothing_left();
  }

  // While the program runs: as soon as `where` is there, something is done to it.
  Finished while_tampering(const Args& args, const std::string& where, const std::function<void(const fs::path&)>& tamper) const {
    std::atomic<bool> over = false;
    std::thread other([&] {
      while (!over) {
        std::error_code none;
        for (const auto& entry : fs::recursive_directory_iterator(at / "run.rehearsal", none)) {
          if (!mentions(entry.path().string(), where) || mentions(entry.path().string(), ".partial")) continue;
          tamper(entry.path());
          return;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    const Finished f = at.spillway(args);
    over = true;
    other.join();
    return f;
  }
  static void flip(const fs::path& file) {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekg(70'000);
    const char one = static_cast<char>(bytes.get());
    bytes.seekp(70'000);
    bytes.put(static_cast<char>(one ^ 64));
  }
};

TEST_F(Rehearse, SaysWhatItTookAndLeavesNothing) {
  const Finished f = at.spillway(rehearsal());
  EXPECT_EQ(f.status, 0) << f.err;
  for (const char* piece :
       {"rehearsed: 3 steps with the same bits after kill -9 as without", "(predicted ", "a save: blocked ", "peak memory: "})
    EXPECT_TRUE(mentions(f.out, piece)) << piece << " in\n" << f.out;
  expect_nothing_left();
  const Finished json = at.spillway(rehearsal({"--json", "--nvme", "scratch", "--place-optimizer", "nvme"}));
  EXPECT_EQ(json.status, 0) << json.err;
  const auto all = nlohmann::json::parse(json.out, nullptr, false);
  EXPECT_EQ(all.value("steps_compared", 0), 3) << json.out;
  EXPECT_GT(all["peak_bytes"].value("nvme", 0.0), 0) << json.out;
  expect_nothing_left();
}

TEST_F(Rehearse, OnTwoRanks) {
  const Finished f = at.spillway(rehearsal({"--ranks", "2", "--zero-stage", "2"}));
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_TRUE(mentions(f.out, "rehearsed: 3 steps")) << f.out;
  expect_nothing_left();
}

TEST_F(Rehearse, WhatCannotBeginIsCaught) {
  Args args = rehearsal();
  *(std::find(args.begin(), args.end(), "--device-memory") + 1) = "1MiB";
  expect_caught(at.spillway(args), 3, "three steps");
}

TEST_F(Rehearse, ASaveThatFailsIsCaught) {
  at.before_start([] {
    const rlimit small{4 << 20, 4 << 20};
    ::setrlimit(RLIMIT_FSIZE, &small);
  });
  expect_caught(at.spillway(rehearsal()), 5, "three steps, and a save");
}

TEST_F(Rehearse, ACheckpointThatIsNotWhatWasSavedIsCaught) {
  const Finished f =
      while_tampering(rehearsal(), "/straight/checkpoints/step-", [](const fs::path& path) { flip(path / "model.safetensors"); });
  expect_caught(f, 4, "the checkpoint is not what was saved");
}

TEST_F(Rehearse, OneThatDoesNotGoOnIsCaught) {
  const Finished f =
      while_tampering(rehearsal({"--ranks", "2"}), "/killed/checkpoints/step-00000001/manifest.json", [](const fs::path& path) {
        for (int k = 0; k < 300; ++k) {
          std::error_code none;
          for (const auto& entry : fs::directory_iterator(path.parent_path().parent_path(), none)) {
            if (fs::exists(entry.path() / "manifest.json", none)) std::ofstream(entry.path() / "manifest.json") << "{";
          }
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
      });
  expect_caught(f, 4, "going on after it");
}

TEST_F(Rehearse, OtherBitsAreCaught) {
  const Finished f = while_tampering(rehearsal(), "/killed/checkpoints/step-", [this](const fs::path&) {
    for (int k = 0; k < 2000 && fs::exists(at / "run.rehearsal"); ++k) {
      const std::string lines = at.read("run.rehearsal/straight/metrics.jsonl");
      const size_t loss = lines.find("\"loss\":");
      if (loss != std::string::npos && lines[loss + 7] != '9') {
        std::fstream file(at / "run.rehearsal/straight/metrics.jsonl", std::ios::in | std::ios::out);
        file.seekp(static_cast<std::streamoff>(loss) + 7);
        file.put('9');
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  expect_caught(f, 7, "step 1: expected the same loss after a kill");
}

TEST_F(Rehearse, CtrlCLeavesNothing) {
  const Finished f = at.spillway_until(
      rehearsal(), [&] { return fs::exists(at / "run.rehearsal/straight/metrics.jsonl"); }, SIGINT);
  EXPECT_EQ(f.status, 130) << f.err;
  expect_nothing_left();
}

}  // namespace
}  // namespace spillway::test::rehearse_test
