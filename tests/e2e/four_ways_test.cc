// Runs one training in every way that a user can start it: by --ranks, by mpirun and on two nodes over TCP (slurm/train.sh does so under
// srun). Four ranks form two pipelines of two stages. Weights, gradients and state are sharded over the pipelines, the optimizer state is
// on nvme, and the text is the King James Bible.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/e2e/support_program.h"

namespace spillway::test::four_ways_test {
namespace {

constexpr int kSteps = 20;

Args training(const std::string& out, const Args& more = {}) {
  Args args = {"train",
               "--model",
               "gpt2-tiny",
               "--data",
               "text.txt",
               "--sequence-length",
               "64",
               "--gradient-accumulation-steps",
               "2",
               "--steps",
               std::to_string(kSteps),
               "--pipeline-stages",
               "2",
               "--zero-stage",
               "3",
               "--place-optimizer",
               "nvme",
               "--nvme",
               "nvme",
               "--device-memory",
               "64MiB",
               "--host-memory",
               "64MiB",
               "--threads",
               "1",
               "--out",
               out};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

struct FourWaysRelease : testing::Test {
  Workplace at;
  int shell(const std::string& commands) const {
    const int status = std::system(("cd '" + at.path().string() + "' && { " + commands + "; }").c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  void SetUp() override {
    if (shell("bible -f gen1:1-lev27:34 < /dev/null > text.txt 2> /dev/null") != 0) GTEST_SKIP() << "no program bible (Debian: bible-kjv)";
    const Finished own = at.spillway(training("own", {"--ranks", "4"}));
    ASSERT_EQ(own.status, 0) << own.err;
    ASSERT_EQ(at.metrics("own").size(), static_cast<size_t>(kSteps));
  }
  std::string state(const std::string& out) const {
    const std::string folder = out + "/checkpoints/step-000000" + std::to_string(kSteps);
    return at.read(folder + "/model.safetensors") + at.read(folder + "/optimizer.safetensors");
  }
  void expect_the_same(const std::string& out) const {
    EXPECT_EQ(numbers_of(at.metrics(out)), numbers_of(at.metrics("own")));
    EXPECT_GT(state("own").size(), 1'000'000u);
    EXPECT_TRUE(state(out) == state("own")) << out;
  }
};

TEST_F(FourWaysRelease, ByMpirun) {
  if (std::string(SPILLWAY_MPIEXEC).empty()) GTEST_SKIP() << "built without MPI";
  // Open MPI's variables below let mpirun be started by root and with fewer cores than ranks.
  for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe"})
    ::setenv(name, "1", 1);
  ::setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1);
  at.start_by({SPILLWAY_MPIEXEC, "-n", "4"});
  const Finished mpi = at.spillway(training("mpi"));
  ASSERT_EQ(mpi.status, 0) << mpi.err;
  expect_the_same("mpi");
}

TEST_F(FourWaysRelease, OnTwoNodes) {
  std::string line = std::string(SPILLWAY_SOURCE_DIR "/tests/e2e/two_nodes.sh ") + SPILLWAY_PROGRAM + " . 2";
  for (const std::string& word : training("nodes")) line += " " + word;
  const int status = shell(line + " > said.txt");
  if (status == 77) GTEST_SKIP() << at.read("said.txt");
  ASSERT_EQ(status, 0) << at.read("rank0.txt") << at.read("rank2.txt");
  expect_the_same("nodes");
}

}  // namespace
}  // namespace spillway::test::four_ways_test
