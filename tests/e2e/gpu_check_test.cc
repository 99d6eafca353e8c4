// Tests gpu_check.sh on a fake machine: its GPU is an emulated one or absent, and small programs in gpu_machine stand for NVIDIA's tools
// and PyTorch. Each command is run to its end. Then a fault is planted in each, which must appear in the report and in the exit status.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "device/device_query.h"
#include "tests/e2e/support_program.h"

namespace spillway::test::gpu_check_test {
namespace {

namespace fs = std::filesystem;

const char* const kMachine = SPILLWAY_SOURCE_DIR "/tests/e2e/gpu_machine/";
const char* const kListed =
    "# all there is to run\n"
    "device/CudaHandle.EventOrdersTwoStreams\n"
    "device/CudaRuntime.CopiesRowsOfOtherPitches\n"
    "device/DeviceQuery.DescribesEveryGpu\n"
    "kernels/EmbeddingTwins.RowsOfAnyWidth\n"
    "kernels/MatmulTwins.NoRowsOrNoColumns\n"
    "optim/NormOnGpu.HasTheBitsOfTheCpu\n"
    "parallel/Models/OnGpu.TrainsNearTheCpu\n";

class GpuCheck : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* folder : {"machine/bin", "machine/share/data"}) fs::create_directories(place_ / folder);
    fs::copy(SPILLWAY_SOURCE_DIR "/scripts/gpu_check.sh", place_ / "machine/gpu_check.sh");
    fs::copy(SPILLWAY_SOURCE_DIR "/scripts/gpu_check", place_ / "machine/share/gpu_check");
    fs::copy(SPILLWAY_SOURCE_DIR "/bench/gpu_peers.py", place_ / "machine/share/real_gpu_peers.py");
    fs::copy(std::string(kMachine) + "gpu_peers.py", place_ / "machine/share/gpu_peers.py");
    place_.write("machine/share/expected_skips.txt", kListed);
    place_.write("machine/share/revision", "abc1234\n");
    program("spillway", std::string(kMachine) + "spillway");
    for (const char* room : {"device", "kernels", "optim", "parallel"}) {
      program(std::string("test_") + room, std::string(kMachine) + "test_program");
    }
    for (const char* what : {"memory", "matmul", "attention"}) {
      program(std::string("bench_") + what + "_cuda", std::string(kMachine) + "bench_program");
    }
  }
  /// Replaces a program of the fake machine.
  void program(const std::string& name, const std::string& of) const {
    fs::remove(place_ / ("machine/bin/" + name));
    fs::copy(of, place_ / ("machine/bin/" + name));
  }
  /// Runs a part of the check and returns its exit status. `planted` sets environment variables.
  int check(const std::string& part, const std::string& planted = "") const {
    const std::string command = "PATH=" + std::string(kMachine) + ":$PATH " + planted + " " + (place_ / "machine/gpu_check.sh").string() +
                                " " + part + " " + (place_ / "out").string() + " >" + (place_ / "said").string() + " 2>&1";
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string report() const { return place_.read("out/report.md"); }
  std::string said() const { return place_.read("said"); }
  /// Checks the outcome in the report's row of a step.
  void expect_row(const std::string& step, const std::string& outcome) const {
    EXPECT_TRUE(mentions(report(), "| " + step + " | " + outcome)) << step << ": expected " << outcome << " in\n" << report();
  }
  void expect_rows(const std::vector<std::string>& steps, const std::string& outcome) const {
    for (const std::string& step : steps) expect_row(step, outcome);
  }

  const Workplace place_;
};
using GpuCheckReportRelease = GpuCheck;
using SoakGpuCheckReport = GpuCheck;

const std::vector<std::string> kTests = {
    "tests of device",      "tests of kernels",     "tests of optim",       "tests of parallel",    "selftest", "memcheck of kernels",
    "memcheck of training", "racecheck of kernels", "synccheck of kernels", "initcheck of kernels", "doctor"};
const std::vector<std::string> kTrainings = {"gpt2-tiny, 60 steps",
                                             "gpt2-tiny in fp16",
                                             "gpt2-tiny in tf32",
                                             "gpt2-124m on the GPU",
                                             "gpt2-124m, all state on the host",
                                             "the same bits in both",
                                             "rates of this node",
                                             "gpt2-124m, 16 x 1024",
                                             "gpt2-124m, attention by cuDNN",
                                             "llama-1.5b on the GPU",
                                             "llama-1.5b, all state on the host",
                                             "gpt2-124m against matmul",
                                             "llama-1.5b against matmul",
                                             "gpt2-124m, our attention against cuDNN's",
                                             "llama-1.5b, host against GPU"};
const std::vector<std::string> kLooks = {"a block's forward, gpt2-124m", "a block's backward, gpt2-124m", "a block's forward, llama-1.5b",
                                         "a block's backward, llama-1.5b"};

TEST_F(GpuCheckReportRelease, ThreeCommandsMakeOneReport) {
  ASSERT_EQ(check("tests"), 0) << said();
  expect_rows(kTests, "ok");
  EXPECT_TRUE(mentions(report(), "## peers: absent, not run")) << report();
  for (const char* fact : {"revision abc1234", "NVIDIA Planted, 580.1", "- CUDA that the driver takes: 13.0", "Nsight Systems version"}) {
    EXPECT_TRUE(mentions(report(), fact)) << fact << report();
  }
  expect_row("clocks and power", "ok, 1755 MHz, 612 W, at most 612, held by power cap");

  ASSERT_EQ(check("trainings"), 0) << said();
  expect_rows(kTrainings, "ok");
  expect_row("llama-1.5b in 10GiB, foretold", "ok, 0.952 times");
  EXPECT_TRUE(mentions(report(), ", 400 TFLOP/s")) << report();
  // The fake profile has four kernels in a step: two in the range Forward 3, one in Backward 3, and one in no range.
  expect_row("kernels of gpt2-124m", "ok, 5.000 ms a step in kernels");
  for (const char* line : {"| Forward | 3.000 | 60.0 % |", "| Forward: norm_rows<float> | 1.000 | 20.0 % | 1 | 1000.0 |",
                           "| Backward: attend | 2.000 | 40.0 % | 1 | 2000.0 |"}) {
    EXPECT_TRUE(mentions(report(), line)) << line << report();
  }
  expect_row("bench of matrix products", "slow, 1 of 2 planted products reach");
  EXPECT_TRUE(mentions(report(), "| llama3-8b/8192/gradients | 100.0 us | 0.1 | 321 |")) << report();

  EXPECT_TRUE(mentions(report(), " | 1755 MHz | 612 W, at most 612, held by power cap | `bin/spillway train ")) << report();

  ASSERT_EQ(check("peers"), 0) << said();
  EXPECT_TRUE(mentions(said(), " 0 failed, 0 absent, 0 cut short, 1 slow")) << said();
  expect_row("gpt2-124m against PyTorch", "ok, reached, 2.00 times");
  expect_row("attention against FlashAttention-2", "ok, reached, 10 of 10 passes");
  expect_row("attention against cuDNN", "slow, not reached, 0 of 10 passes");
  expect_rows(kLooks, "ok, 60.0 us in 3 launches");
  for (const char* line : {"| gpt2-124m, spillway | 3200 | 400.0 | 10.00 | 2 |", "| attend<128> | 30.0 | 50.0 % | 2 | 70 |",
                           "| gpt2-124m/1024/forward, cuDNN | 0.0600 | 429.5 | 0.600 |", "## tests: 13 steps, 0 failed"}) {
    EXPECT_TRUE(mentions(report(), line)) << line << report();
  }
  const std::string listing = "tar -tzf " + (place_ / "out/gpu_check.tar.gz").string() + " >" + (place_ / "listed").string();
  ASSERT_EQ(std::system(listing.c_str()), 0);
  for (const char* file : {"report.md", "logs/tests/kernels/MatmulTwins.log", "logs/trainings/clocks.csv", "logs/peers/commands.txt"}) {
    EXPECT_TRUE(mentions(place_.read("listed"), file)) << file << place_.read("listed");
  }
}

TEST_F(SoakGpuCheckReport, TestsThatFailHangCrashOrAreForgottenAndComplaints) {
  EXPECT_EQ(
      check("tests", "GPU_CHECK_TINY=54 FAULT_TESTS=fails,hang,crash,forgets FAULT_SMI='[N/A], [N/A]' FAULT_SANITIZER='Invalid write'"), 1)
      << said();
  expect_row("tests of device", "FAILED: 0 tests, and CudaHandle ended with 124, 2 passed");
  expect_row("tests of kernels", "FAILED: 1 tests, 1 passed");
  expect_row("tests of optim", "FAILED: 0 tests, and NormOnGpu ended with 139, 0 passed");
  expect_row("tests of parallel", "FAILED: 0 passed, nothing is said of Models/OnGpu.TrainsNearTheCpu");
  expect_row("memcheck of kernels", "FAILED: 1 complaints, EmbeddingTwins ended with 1,MatmulTwins ended with 86, 1 tests passed");
  expect_row("racecheck of kernels", "FAILED");
  expect_row("selftest", "ok");
  expect_row("clocks and power", "FAILED: clocks: ");
  EXPECT_TRUE(mentions(report(), "x.cc:3: Failure, 2 is not 3") && mentions(report(), "it broke")) << report();
  EXPECT_TRUE(mentions(said(), "failed: tests of optim")) << said();
}

TEST_F(SoakGpuCheckReport, ASanitizerThatIsNotDoneHasNotPassed) {
  EXPECT_NE(check("tests", "GPU_CHECK_TINY=27 FAULT_SANITIZER=hang"), 0) << said();
  expect_row("racecheck of kernels", "cut short after 0 tests, nothing found, not done: EmbeddingTwins");
  EXPECT_TRUE(mentions(said(), "racecheck of kernels\n")) << "not among what is not done: " << said();
}

TEST_F(SoakGpuCheckReport, TrainingsThatHangDoNotLearnOrDiffer) {
  fs::remove(place_ / "machine/bin/bench_matmul_cuda");
  EXPECT_EQ(check("trainings", "GPU_CHECK_TINY=54 FAULT_TRAINING=hang,still,bits,refuse FAULT_NSYS=1 FAULT_BENCH='no figures'"), 1)
      << said();
  expect_row("gpt2-tiny, 60 steps", "FAILED: ended after 2 s");
  expect_row("gpt2-tiny in fp16", "FAILED: the loss does not fall");
  expect_row("gpt2-tiny in tf32", "ok");
  expect_row("the same bits in both", "FAILED: they differ");
  expect_row("llama-1.5b on the GPU", "absent: it does not fit");
  expect_rows({"llama-1.5b against matmul", "llama-1.5b, host against GPU"}, "absent: a training it is of said nothing");
  expect_row("bench of matrix products", "absent: not in this archive");
  expect_row("kernels of gpt2-124m", "FAILED: kernels: none of 16 kernels lies in a range");
  expect_rows({"bench of memory", "bench of attention"}, "FAILED: bench: FileNotFoundError");
}

TEST_F(SoakGpuCheckReport, WithoutCudnnItsAttentionIsAbsent) {
  EXPECT_EQ(check("trainings", "FAULT_TRAINING=cudnn"), 3) << said();
  EXPECT_TRUE(mentions(said(), " 0 failed, 3 absent, 0 cut short")) << said();
  expect_row("gpt2-124m, attention by cuDNN", "absent: [attention] expected cuDNN, got none");
  expect_row("gpt2-124m, our attention against cuDNN's", "absent: a training it is of said nothing");
  expect_row("gpt2-124m, 16 x 1024", "ok");
  expect_row("bench of attention", "slow, 1 of 2 planted");
  expect_row("bench of cuDNN's attention", "absent: cuDNN's attention: got none");
}

TEST_F(SoakGpuCheckReport, PeersThatAreMissingOrSayNothing) {
  EXPECT_EQ(check("peers", "FAULT_PEERS='no torch' FAULT_NCU='==ERROR== ERR_NVGPUCTRPERM'"), 3) << said();
  expect_row("PyTorch beside", "absent: no PyTorch here");
  expect_rows({"gpt2-124m against PyTorch", "attention against FlashAttention-2", "attention against cuDNN"},
              "absent: nothing was compared");
  expect_rows(kLooks, "absent: this user may not read the GPU's counters");

  EXPECT_EQ(check("peers", "FAULT_PEERS='no cuDNN' FAULT_NCU='==WARNING== No kernels were profiled.'"), 1) << said();
  expect_row("PyTorch beside", "absent: cuDNN of attention gpt2-124m/1024/forward;");
  expect_row("attention against FlashAttention-2", "ok, reached");
  expect_row("attention against cuDNN", "absent: nothing was compared");
  expect_rows(kLooks, "FAILED: ncu: no kernel was measured");

  EXPECT_EQ(check("peers", "FAULT_BENCH='no figures'"), 1) << said();
  expect_row("PyTorch beside", "FAILED with 1");
  expect_row("llama-1.5b against PyTorch", "ok, reached");
  EXPECT_TRUE(mentions(report(), "bench_attention_cuda printed no figures: 'no figures")) << report();
}

TEST_F(SoakGpuCheckReport, WithoutAGpuNothingPasses) {
  for (const char* part : {"tests", "trainings", "peers"}) {
    EXPECT_EQ(check(part, "CUDA_VISIBLE_DEVICES= FAULT_TESTS=no-gpu FAULT_BENCH='skipped: no driver'"), 3) << said();
    EXPECT_TRUE(mentions(said(), " 0 failed")) << said();
  }
  expect_rows({"tests of kernels", "memcheck of kernels", "gpt2-124m on the GPU", "kernels of llama-1.5b", "bench of memory",
               "PyTorch beside", "a block's backward, llama-1.5b"},
              "absent: ");
  EXPECT_FALSE(mentions(report(), " passed")) << report();
}

TEST_F(SoakGpuCheckReport, OneThatIsEndedInItsMidstIsSaidNotToBeDone) {
  const std::string ended = "PATH=" + std::string(kMachine) + ":$PATH FAULT_TESTS=hang timeout 3 " +
                            (place_ / "machine/gpu_check.sh").string() + " tests " + (place_ / "out").string() + " >" +
                            (place_ / "said").string() + " 2>&1";
  EXPECT_NE(std::system(ended.c_str()), 0);
  EXPECT_TRUE(mentions(report(), "so far: FAILED, it has not come to its end")) << report();
  // The check has nine seconds in all, of which each step gets one.
  EXPECT_EQ(check("peers", "GPU_CHECK_TINY=9"), 1) << said();
  expect_row("a block's backward, llama-1.5b", "FAILED: no time was left for it");
}

TEST_F(SoakGpuCheckReport, WritesIntoNoFolderThatIsNotIts) {
  EXPECT_EQ(check("all"), 2) << said();
  EXPECT_TRUE(mentions(said(), "usage: gpu_check.sh tests|trainings|peers")) << said();
  fs::create_directories(place_ / "out");
  place_.write("out/thesis.tex", "");
  EXPECT_EQ(check("tests"), 2) << said();
  EXPECT_TRUE(fs::exists(place_ / "out/thesis.tex") && !fs::exists(place_ / "out/report.md"));
}

// Runs this build's programs on an emulated GPU. selftest and bench, which would be too slow there, do nothing and succeed.
class GpuCheckOnEmulator : public GpuCheck {
 protected:
  void SetUp() override {
    ::setenv("SPILLWAY_EMULATED_GPUS", "1", 1);
    const GpuReport found = query_gpus();
    if (found.gpus.empty() || !mentions(found.gpus[0].name, "emulated")) GTEST_SKIP() << "needs emulated GPUs";
    GpuCheck::SetUp();
    place_.write("machine/bin/spillway", "#!/bin/sh\ncase $1 in selftest|bench) exit 0 ;; esac\nexec " SPILLWAY_PROGRAM " \"$@\"\n");
    for (const char* room : {"device", "kernels", "optim", "parallel"}) {
      const std::string name = std::string("test_") + room;
      fs::remove(place_ / ("machine/bin/" + name));
      fs::create_symlink(SPILLWAY_BINARY_DIR "/tests/" + name, place_ / ("machine/bin/" + name));
    }
  }
  void TearDown() override { ::unsetenv("SPILLWAY_EMULATED_GPUS"); }
};
using GpuCheckOnEmulatorMore = GpuCheckOnEmulator;

TEST_F(GpuCheckOnEmulator, TestsPass) {
  std::string listed = kListed;
  // the tests of parallel/ are left out, because they train every model
  place_.write("machine/share/expected_skips.txt", listed.erase(listed.find("parallel/")));
  EXPECT_EQ(check("tests", "GPU_CHECK_TINY=540"), 3) << said();
  EXPECT_TRUE(mentions(said(), " 0 failed, 1 absent, 0 cut short")) << said() << report();
  expect_rows({"tests of device", "tests of kernels", "tests of optim", "doctor", "memcheck of kernels", "initcheck of kernels"}, "ok");
  expect_row("memcheck of training", "absent: ");
}

TEST_F(GpuCheckOnEmulatorMore, TrainingsAndPeers) {
  EXPECT_EQ(check("trainings", "GPU_CHECK_TINY=1080"), 3) << said();
  EXPECT_TRUE(mentions(said(), " 0 failed, 2 absent, 0 cut short")) << said() << report();
  expect_rows({"gpt2-tiny, 60 steps", "gpt2-tiny in fp16", "gpt2-tiny in tf32", "gpt2-124m on the GPU", "gpt2-124m, all state on the host",
               "gpt2-124m, attention by cuDNN", "the same bits in both", "llama-1.5b in 64MiB", "kernels of gpt2-124m"},
              "ok");
  // these rows are absent, because no rate of matrix products is measured
  expect_rows({"gpt2-124m against matmul", "llama-1.5b against matmul"}, "absent: ");
  EXPECT_EQ(check("peers", "GPU_CHECK_TINY=1080"), 0) << said() << report();
  expect_row("llama-1.5b against PyTorch", "slow, not reached");
  expect_rows(kLooks, "ok");
}

// Unpacks the archive of scripts/bundle.sh --check and runs it where there is no GPU or none is visible.
TEST(SoakGpuCheckArchive, RunsToItsEndWithoutAGpu) {
  const Workplace place;
  const std::string unpacked = (place / "unpacked").string();
  fs::create_directories(unpacked);
  const auto run = [&](const std::string& command) {
    const int status = std::system(("( " + command + " ) >" + (place / "said").string() + " 2>&1").c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  ASSERT_EQ(run("cd " SPILLWAY_SOURCE_DIR " && SPILLWAY_BUILD=" SPILLWAY_BINARY_DIR " scripts/bundle.sh --check " + place.path().string()),
            0)
      << place.read("said");
  ASSERT_EQ(run("tar -C " + unpacked + " --strip-components=1 -xJf " + place.path().string() + "/spillway-check-*.tar.xz"), 0)
      << place.read("said");
  for (const auto& file : fs::directory_iterator(place.path())) {
    if (file.is_regular_file()) {
      EXPECT_LT(file.file_size(), 32u << 20) << file.path();
    }
  }
  for (const char* part : {"tests", "trainings", "peers"}) {
    EXPECT_EQ(run("CUDA_VISIBLE_DEVICES= " + unpacked + "/gpu_check.sh " + part + " " + (place / "out").string()), 3) << place.read("said");
    EXPECT_TRUE(mentions(place.read("said"), " 0 failed")) << place.read("said");
  }
  const std::string report = place.read("out/report.md");
  for (const char* step : {"tests of kernels", "gpt2-124m on the GPU", "memcheck of kernels", "bench of memory", "PyTorch beside"}) {
    EXPECT_TRUE(mentions(report, std::string("| ") + step + " | absent: ")) << step << " in\n" << report;
  }
}

}  // namespace
}  // namespace spillway::test::gpu_check_test
