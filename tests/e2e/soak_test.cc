// Holds the longest tests: a run that is killed again and again, and a model larger than the memory limit.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/e2e/support_program.h"

namespace spillway::test::soak_test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

Args spilled(const std::string& out) {
  return {"train",      "--model",
          "llama-tiny", "--data",
          "text.txt",   "--sequence-length",
          "64",         "--micro-batch-size",
          "2",          "--steps",
          "60",         "--learning-rate",
          "1e-3",       "--out",
          out,          "--device-memory",
          "16MiB",      "--host-memory",
          "64MiB",      "--nvme",
          "scratch",    "--place-parameters",
          "nvme",       "--place-gradients",
          "nvme",       "--place-optimizer",
          "nvme",       "--checkpoint-every",
          "2",          "--threads",
          "2"};
}

TEST(SoakKill, AnyInstantGivesTheSameBits) {
  const Workplace at;
  at.write_text("text.txt", 60000);
  ASSERT_EQ(at.spillway(spilled("straight")).status, 0);
  const auto want = numbers_of(at.metrics("straight"));
  const std::string weights = at.read("straight/checkpoints/step-00000060/model.safetensors");
  std::mt19937 random(11);
  int kills = 0, runs = 0;
  for (; kills < 60; ++runs) {
    const std::string out = "killed-" + std::to_string(runs);
    for (;;) {
      const auto start = Clock::now();
      const auto after = std::chrono::milliseconds(20 + random() % 900);
      const Finished f = at.spillway_until(
          spilled(out), [&] { return Clock::now() - start >= after; }, SIGKILL);
      if (f.status == 0) break;
      ASSERT_EQ(f.status, 128 + SIGKILL) << f.err;
      ++kills;
    }
    EXPECT_EQ(numbers_of(at.metrics(out)), want);
    ASSERT_TRUE(at.read(out + "/checkpoints/step-00000060/model.safetensors") == weights);
    fs::remove_all(at / out);
  }
  std::cout << kills << " kills over " << runs << " runs\n";
}

// Shows that gpt2-355m, which has 5.3 GiB of training state, trains within 1.5 GiB if everything is on nvme.
TEST(SoakLarge, A355mModelInACgroupOf1536MiB) {
  const fs::path cgroup = "/sys/fs/cgroup/memory/spillway-soak";
  std::error_code error;
  if (!fs::create_directory(cgroup, error) && error) GTEST_SKIP() << "a memory cgroup cannot be made here: " << error.message();
  std::ofstream(cgroup / "memory.limit_in_bytes") << (1536l << 20);
  std::ofstream(cgroup / "memory.max_usage_in_bytes") << 0;
  Workplace at;
  at.write_text("text.txt", 60000);
  at.join_cgroup(cgroup);
  const Finished f = at.spillway({"train",     "--model",
                                  "gpt2-355m", "--data",
                                  "text.txt",  "--sequence-length",
                                  "64",        "--micro-batch-size",
                                  "1",         "--steps",
                                  "3",         "--device-memory",
                                  "640MiB",    "--host-memory",
                                  "512MiB",    "--place-parameters",
                                  "nvme",      "--place-gradients",
                                  "nvme",      "--place-optimizer",
                                  "nvme",      "--nvme",
                                  "scratch",   "--no-final-checkpoint",
                                  "--out",     "run"});
  EXPECT_EQ(f.status, 0) << f.err;
  const auto rows = at.metrics("run");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_LE(nlohmann::json::parse(rows[2])["peak_bytes"]["device"].get<long>(), 640l << 20);
  long peak = 0;
  std::ifstream(cgroup / "memory.max_usage_in_bytes") >> peak;
  EXPECT_LE(peak, 1536l << 20);
  std::cout << "peak of the cgroup: " << (peak >> 20) << " MiB\n" << f.out;
  fs::remove(cgroup, error);
}

}  // namespace
}  // namespace spillway::test::soak_test
