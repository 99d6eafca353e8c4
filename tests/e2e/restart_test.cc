// Tests a run with all of its state on nvme that is killed before its first checkpoint and started in another way: one that is refused, or
// with other flags, ranks or paths. Whatever that start does, a start with the right flags, ranks and paths still finds the state.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>

#include <cstring>
#include <fstream>
#include <span>

#include "base/crc32c.h"
#include "tests/e2e/support_kernel.h"
#include "tests/e2e/support_nvme_run.h"

namespace spillway::test::restart_test {
namespace {

namespace fs = std::filesystem;

struct Restart : NvmeRun {
  static constexpr size_t kKilledAfter = 5;

  // Trains until `steps` steps are done, ends the run by `signal` and returns what it printed.
  std::string kill_after(const Args& args, size_t steps, int signal = SIGKILL) const {
    fs::remove(at / "run/metrics.jsonl");
    const Finished f = at.spillway_until(
        args, [&] { return at.metrics("run").size() >= steps; }, signal);
    EXPECT_EQ(f.status, signal == SIGKILL ? 128 + SIGKILL : 75) << f.err;
    return f.err;
  }
  void expect_weights_of(const std::string& straight) const {
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      EXPECT_GT(final_file(straight, file).size(), 100'000u);
      EXPECT_TRUE(final_file("run", file) == final_file(straight, file)) << file;
    }
  }
  void kill_behind_checkpoint(const Args& args) const {
    const Finished f = at.spillway_until(
        with(args, "--checkpoint-every", "4"),
        [&] { return at.metrics("run").size() >= 6 && fs::exists(at / "run/checkpoints/step-00000004"); }, SIGKILL);
    EXPECT_EQ(f.status, 128 + SIGKILL) << f.err;
  }
  // Checks that the right command continues from the state on nvme, and ends with the weights of a run that was never stopped.
  void expect_right_one_goes_on(const Args& args) const {
    const Finished f = at.spillway(args);
    ASSERT_EQ(f.status, 0) << f.err;
    EXPECT_TRUE(mentions(f.err, "from the state on nvme")) << f.err;
    EXPECT_FALSE(mentions(f.err, "new run")) << f.err;
    expect_weights_of("straight");
    EXPECT_TRUE(fs::is_empty(at / "scratch")) << "a run that took its last step leaves nothing";
  }
};
using RestartMore = Restart;

TEST_F(Restart, ARefusedOneLeavesTheStateAlone) {
  ASSERT_EQ(at.spillway(on_nvme("straight", "none")).status, 0);
  const Args right = on_nvme("run", "none");
  kill_after(right, kKilledAfter);
  const auto refused = [&](const Args& args, int status, const std::string& why) {
    const Finished f = at.spillway(args);
    EXPECT_EQ(f.status, status) << f.err;
    EXPECT_TRUE(mentions(f.err, why)) << f.err;
    EXPECT_TRUE(fs::exists(store())) << why;
  };
  refused(with(right, "--learning-rate", "2e-3"), 2, "learning_rate");
  refused(with(right, "--resume", "never"), 2, "--resume is never");
  refused(with(right, "--data", "none.txt"), 4, "none.txt");
  refused(with(right, "--device-memory", "1KiB"), 3, "device");
  refused(with(right, "--trace", "missing/folder/trace.json"), 5, "trace.json");
  EXPECT_TRUE(mentions(at.spillway({"doctor", "--nvme", "scratch"}).out, "a dead run left it"));
  expect_right_one_goes_on(right);
}

// Shows that a killed run's store is set aside by starts whose layout it does not fit, if there is a checkpoint
// to use. The starts say so, doctor lists the store, and a start that it fits uses it again.
TEST_F(RestartMore, OneOfAnotherLayoutSetsTheStateAside) {
  ASSERT_EQ(at.spillway(on_nvme("straight", "none")).status, 0);
  const Args right = on_nvme("run", "none");
  kill_behind_checkpoint(right);
  for (const Args& other : {with(right, "--durability", "step"), with(right, "--place-optimizer", "host")}) {
    const std::string said = kill_after(other, 1);
    EXPECT_TRUE(mentions(said, "set aside as ") && mentions(said, "is newer than the checkpoint of step 4")) << said;
    EXPECT_TRUE(mentions(at.spillway({"doctor", "--nvme", "scratch"}).out, ".aside-"));
  }
  expect_right_one_goes_on(right);
}

// Shows that a start may place gradients and activations elsewhere, since they need not
// survive a restart. A plan from new measurements may choose to do so.
TEST_F(RestartMore, OneThatPlacesGradientsOrActivationsElsewhereGoesOn) {
  ASSERT_EQ(at.spillway(on_nvme("straight", "none")).status, 0);
  const Args right = with(on_nvme("run", "none"), "--place-activations", "nvme");
  kill_after(right, kKilledAfter);
  for (const Args& other : {with(right, "--place-gradients", "host"), with(right, "--place-activations", "host")}) {
    const std::string said = kill_after(other, kKilledAfter);
    EXPECT_TRUE(mentions(said, "from the state on nvme")) << said;
    EXPECT_FALSE(mentions(said, "set aside") || mentions(said, "new run")) << said;
  }
  expect_right_one_goes_on(right);
}

TEST_F(RestartMore, PathsInAnotherOrderOrLessOfThemSetTheStateAside) {
  ASSERT_EQ(at.spillway(on_nvme("straight", "none")).status, 0);
  const auto on_paths = [](std::vector<std::string> paths) {
    Args args = on_nvme("run", "none", "scratch/a");
    *std::find(args.begin(), args.end(), "scratch/a") = paths[0];
    for (size_t p = 1; p < paths.size(); ++p) args.insert(args.end(), {"--nvme", paths[p]});
    return args;
  };
  for (const char* path : {"scratch", "scratch/a", "scratch/b"}) fs::create_directory(at / path);
  kill_behind_checkpoint(on_paths({"scratch/a", "scratch/b"}));
  for (const Args& other : {on_paths({"scratch/b", "scratch/a"}), on_paths({"scratch/a"})}) {
    const std::string said = kill_after(other, 1);
    EXPECT_TRUE(mentions(said, "set aside as ")) << said;
  }
  const Finished f = at.spillway(on_paths({"scratch/a", "scratch/b"}));
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_TRUE(mentions(f.err, "from the state on nvme")) << f.err;
  expect_weights_of("straight");
  for (const char* path : {"scratch/a", "scratch/b"}) EXPECT_TRUE(fs::is_empty(at / path)) << path;
}

// Shows that a start on another number of ranks is refused: it uses other folders and would leave behind the only state of the run.
TEST_F(RestartMore, OneOnOtherRanksLeavesTheStateOfTheseAlone) {
  const auto of = [](const std::string& out, const char* ranks) {
    return with(with(on_nvme(out, "none"), "--global-batch-size", "2"), "--ranks", ranks);
  };
  ASSERT_EQ(at.spillway(of("straight", "1")).status, 0);
  kill_after(of("run", "1"), kKilledAfter);
  const Finished refused = at.spillway(of("run", "2"));
  EXPECT_EQ(refused.status, 2) << refused.err;
  EXPECT_TRUE(mentions(refused.err, "another number of ranks")) << refused.err;
  expect_right_one_goes_on(of("run", "1"));
}

TEST_F(Restart, AStoreOfANewerProgramStaysAsItIs) {
  const Args right = on_nvme("run", "none");
  kill_after(right, kKilledAfter);
  // The store's file gets a newer version number and a header checksum that fits, as if a newer program had written it.
  const fs::path file = store();
  std::string page(4096, '\0');
  std::fstream(file, std::ios::in | std::ios::binary).read(page.data(), 4096);
  page[8] = static_cast<char>(page[8] + 1);
  const u32 crc = crc32c(std::as_bytes(std::span(page)).first(4092));
  std::memcpy(page.data() + 4092, &crc, 4);
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).write(page.data(), 4096);
  const auto bytes = fs::file_size(file);
  const Finished f = at.spillway(right);
  EXPECT_EQ(f.status, 4) << f.err;
  EXPECT_TRUE(mentions(f.err, "newer than this program")) << f.err;
  EXPECT_EQ(fs::file_size(file), bytes);
}

// Makes flock fail, as on Lustre without it. The run says so and still locks both folders, and a kill leaves no lock for the next start.
TEST_F(RestartMore, WithoutFlockAFileNamesTheHolder) {
  ASSERT_EQ(at.spillway(on_nvme("straight", "none")).status, 0);
  at.before_start([] { forbid(SYS_flock, ENOSYS); });
  const Args right = on_nvme("run", "none");
  std::string said;
  Finished second;
  at.spillway_until(
      right,
      [&] {
        if (at.metrics("run").size() < kKilledAfter) return false;
        said = at.read("stderr.txt");
        ::kill(at.pid(), SIGSTOP);  // stops the first process before the second one looks for locks
        second = at.spillway(right);
        return true;
      },
      SIGKILL);
  EXPECT_TRUE(mentions(said, "run cannot be locked on this filesystem: Function not implemented")) << said;
  EXPECT_TRUE(mentions(said, "nvme: ") && mentions(said, "give --nvme a local disk")) << said;
  EXPECT_EQ(second.status, 2) << second.err;
  EXPECT_TRUE(mentions(second.err, "is in use by host")) << second.err;
  expect_right_one_goes_on(right);
  EXPECT_FALSE(fs::exists(at / "run/lock.holder"));
}

}  // namespace
}  // namespace spillway::test::restart_test
