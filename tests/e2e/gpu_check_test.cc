// Tests gpu_check.sh on a fake machine: its GPU is an emulated one or absent, and small programs in gpu_machine stand for NVIDIA's tools
// and PyTorch. Both of its parts are run to their ends. Then a fault is planted in each step, which must appear in the report and in the
// exit status.
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
    "eager/OptimizerTwins.TensorsAreMadeThereAlike\n"
    "kernels/AttentionTwins.NothingBehindTheLastRowOnTensorCores\n"
    "kernels/EmbeddingTwins.RowsOfAnyWidth\n"
    "kernels/MatmulTwins.NoRowsOrNoColumns\n"
    "optim/NormOnGpu.HasTheBitsOfTheCpu\n"
    "parallel/Models/OnGpu.TrainsNearTheCpu\n";

class GpuCheck : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* folder : {"bin", "lib", "share/python/spillway", "share/python_tests"}) {
      fs::create_directories(place_ / "machine" / folder);
    }
    fs::copy(SPILLWAY_SOURCE_DIR "/scripts/gpu_check.sh", place_ / "machine/gpu_check.sh");
    fs::copy(SPILLWAY_SOURCE_DIR "/scripts/gpu_check", place_ / "machine/share/gpu_check");
    fs::copy(SPILLWAY_SOURCE_DIR "/bench/gpu_peers.py", place_ / "machine/share/real_gpu_peers.py");
    for (const char* file : {"gpu_peers.py", "torch_steps.py", "kernel_times.tsv"}) {
      fs::copy(std::string(kMachine) + file, place_ / "machine/share" / file);
    }
    place_.write("machine/share/expected_skips.txt", kListed);
    place_.write("machine/share/revision", "abc1234\n");
    place_.write("machine/lib/libkernel_times.so", "");
    // the Python module and its tests
    place_.write("machine/share/python/for", "cp312\n");
    place_.write("machine/share/python/spillway/__init__.py", "");
    place_.write("machine/share/python/pytest.py", "print('3 passed in 0.1s')\n");
    program("spillway", std::string(kMachine) + "spillway");
    for (const char* room : {"device", "eager", "kernels", "optim", "parallel"}) {
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
  /// Checks that the steps have no more seconds in the time table than the whole.
  void expect_time_table(int seconds) const {
    const std::string text = said(), before = "by the time table ";
    const size_t at = text.find(before);
    ASSERT_NE(at, std::string::npos) << text;
    EXPECT_LE(std::stoi(text.substr(at + before.size())), seconds) << text;
  }
  void expect_rows(const std::vector<std::string>& steps, const std::string& outcome) const {
    for (const std::string& step : steps) expect_row(step, outcome);
  }

  const Workplace place_;
};
using GpuCheckReportRelease = GpuCheck;
using SoakGpuCheckReport = GpuCheck;

const std::vector<std::string> kTrainings = {"gpt2-tiny on the GPU", "gpt2-tiny, all state on the host", "gpt2-tiny, all state on nvme",
                                             "1.5B on the GPU",      "1.5B, all state on the host",      "a mixture of experts",
                                             "QLoRA over nf4",       "8B, optimizer on the host",        "1.5B, optimizer on nvme"};
const std::vector<std::string> kLooks = {"a block's forward", "a block's backward"};

TEST_F(GpuCheckReportRelease, FirstAndRestMakeAReportEach) {
  ASSERT_EQ(check("first"), 0) << said();
  expect_rows({"find a GPU", "doctor", "tests of device", "compute-sanitizer", "tests of kernels", "tests of optim", "tests of eager",
               "selftest", "the same bits on all three", "rates of this node", "1.5B against matmul", "1.5B, host against GPU",
               "racecheck of attention", "memcheck of kernels"},
              "ok");
  expect_rows(kTrainings, "ok, loss 99.5 to 1.5");
  expect_row("1.5B on the host, foretold", "ok, 0.952 times");
  expect_row("bench of matrix products", "slow, 1 of 2 planted products reach");
  expect_row("PyTorch beside", "ok, torch 0.200 s a step");
  expect_row("clocks and power", "ok, 1755 MHz, 612 W, at most 612, held by power cap");
  for (const char* line :
       {"revision abc1234", "NVIDIA Planted, 580.1", "- CUDA that the driver takes: 13.0", ", 400 TFLOP/s",
        "| llama3-8b/8192/gradients | 100.0 us | 0.1 | 321 |", " | 1755 MHz | 612 W, at most 612, held by power cap | `bin/spillway train ",
        // The fake run has five steps: two kernels in the range Forward 3, one in Backward 3, one in no range, and a copy beside one.
        "| Forward | 3.000 | 27.3 % |", "| Forward: norm_rows<float> | 1.000 | 9.1 % | 0.2 | 5000.0 |",
        "| Backward: attend | 2.000 | 18.2 % | 0.2 | 10000.0 |", "| host to device | 9.5 | 5.0 | 2.000 |",
        "kernels ran 55.0 %, copies 10.0 %, both at once 5.0 %."}) {
    EXPECT_TRUE(mentions(report(), line)) << line << report();
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(place_ / "out"), {}), 2) << "other files than report.md and gpu_check.tar.gz";
  const std::string listing = "tar -tzf " + (place_ / "out/gpu_check.tar.gz").string() + " >" + (place_ / "listed").string();
  ASSERT_EQ(std::system(listing.c_str()), 0);
  for (const char* file : {"report.md", "logs/kernels/MatmulTwins.log", "logs/clocks.csv", "logs/commands.txt"}) {
    EXPECT_TRUE(mentions(place_.read("listed"), file)) << file << place_.read("listed");
  }
  // NVIDIA's libraries come first, because no emulator runs them.
  EXPECT_TRUE(mentions(report(), "each suite: MatmulTwins AttentionTwins EmbeddingTwins")) << report();
  expect_time_table(420);

  ASSERT_EQ(check("rest"), 0) << said();
  EXPECT_TRUE(mentions(said(), " 0 failed, 0 absent, 0 cut short, 1 slow")) << said();
  expect_row("tests of Python", "ok, 3 passed");
  expect_row("gpt2-124m against PyTorch", "ok, reached, 2.00 times");
  expect_row("attention against FlashAttention-2", "ok, reached, 10 of 10 passes");
  expect_row("attention against cuDNN", "slow, not reached, 0 of 10 passes");
  expect_rows(kLooks, "ok, 60.0 us in 3 launches");
  expect_rows({"tests of parallel", "memcheck of all kernels", "memcheck of training", "racecheck of all kernels",
               "synccheck of all kernels", "initcheck of all kernels", "gpt2-tiny in fp16", "1.5B in 10GiB"},
              "ok");
  for (const char* line : {"| gpt2-124m, spillway | 3200 | 400.0 | 10.00 | 2 |", "| attend<128> | 30.0 | 50.0 % | 2 | 70 |",
                           "| gpt2-124m/1024/forward, cuDNN | 0.0600 | 429.5 | 0.600 |"}) {
    EXPECT_TRUE(mentions(report(), line)) << line << report();
  }
  expect_time_table(540);
}

TEST_F(SoakGpuCheckReport, AFailedTestIsRunAgainAloneAndTheRestGoesOn) {
  EXPECT_EQ(check("first", "GPU_CHECK_SECONDS=120 FAULT_TESTS=fails,crash FAULT_SMI='[N/A], [N/A]' FAULT_SANITIZER='Invalid write'"), 1)
      << said();
  expect_row("tests of kernels", "FAILED: 1 tests, 2 passed");
  expect_row("again: kernels/EmbeddingTwins.RowsOfAnyWidth", "looked: alone it ends with 1, 0 complaints");
  expect_row("tests of optim", "FAILED: 0 tests, and NormOnGpu ended with 139, 0 passed");
  expect_row("again: optim/NormOnGpu.*", "looked: alone it ends with 139");
  expect_row("racecheck of attention", "FAILED: 1 complaints, AttentionTwins ended with 86, 1 tests passed");
  expect_rows({"selftest", "1.5B on the GPU"}, "ok");
  expect_row("clocks and power", "FAILED: clocks: ");
  EXPECT_TRUE(mentions(report(), "x.cc:3: Failure, 2 is not 3") && mentions(report(), "it broke")) << report();
  EXPECT_TRUE(mentions(report(), "CUDA_LAUNCH_BLOCKING=1 SPILLWAY_TEST_SEPARATE_MEMORY=1")) << report();
  EXPECT_TRUE(mentions(said(), "failed: tests of optim")) << said();
}

TEST_F(SoakGpuCheckReport, ItStopsWhereTheMostBasicTestsFail) {
  EXPECT_EQ(check("first", "GPU_CHECK_SECONDS=60 FAULT_TESTS=hang"), 1) << said();
  expect_row("tests of device", "FAILED: 0 tests, and CudaHandle ended with 124, 2 passed");
  expect_row("everything else", "absent: the most basic tests fail");
  EXPECT_FALSE(mentions(report(), "tests of kernels")) << report();
}

TEST_F(SoakGpuCheckReport, TestsThatAreForgottenAndASanitizerThatRefusesTheGpu) {
  EXPECT_EQ(check("rest", "FAULT_TESTS=forgets FAULT_SANITIZER=refuses"), 1) << said();
  expect_row("tests of parallel", "FAILED: 0 passed, nothing is said of Models/OnGpu.TrainsNearTheCpu");
  expect_row("compute-sanitizer", "absent: it does not work on this node: Error: Device not supported");
  expect_row("racecheck of all kernels", "absent: it does not work on this node: Error: Device not supported");
}

TEST_F(SoakGpuCheckReport, ASanitizerThatIsNotDoneHasNotPassed) {
  EXPECT_NE(check("rest", "GPU_CHECK_SECONDS=54 FAULT_SANITIZER=hang"), 0) << said();
  expect_row("racecheck of all kernels", "cut short after 0 tests, nothing found, not done: AttentionTwins");
  EXPECT_TRUE(mentions(said(), "racecheck of all kernels\n")) << "not among what is not done: " << said();
}

TEST_F(SoakGpuCheckReport, TrainingsThatHangDoNotLearnOrDiffer) {
  fs::remove(place_ / "machine/bin/bench_matmul_cuda");
  fs::remove_all(place_ / "machine/share/python/spillway");
  EXPECT_EQ(check("first",
                  "GPU_CHECK_SECONDS=84 FAULT_TRAINING=hang,still,bits,refuse FAULT_TIMES='problem\tno libcupti' FAULT_BENCH='no figures'"),
            1)
      << said();
  expect_row("gpt2-tiny on the GPU", "FAILED: ended after ");
  expect_row("gpt2-tiny, all state on the host", "ok");
  expect_row("gpt2-tiny, all state on nvme", "FAILED: the loss does not fall");
  expect_row("the same bits on all three", "absent: a training it is of said nothing");
  expect_row("1.5B on the GPU", "absent: it does not fit");
  expect_rows({"1.5B against matmul", "1.5B, host against GPU"}, "absent: a training it is of said nothing");
  expect_row("1.5B, kernels by name", "absent: no libcupti");
  expect_row("bench of matrix products", "absent: not in this archive");
  expect_rows({"bench of AdamW and of the link", "bench of attention"}, "FAILED: bench: FileNotFoundError");
  expect_row("PyTorch beside", "absent: the Python module is not in this archive");
  EXPECT_EQ(check("first", "FAULT_TRAINING=bits FAULT_TIMES='range\t1\t2\t3\tForward'"), 1) << said();
  expect_row("the same bits on all three", "FAILED: they differ");
  expect_row("1.5B, kernels by name", "FAILED: kernels: no kernel was recorded");
}

TEST_F(SoakGpuCheckReport, WithoutCudnnItsAttentionIsAbsent) {
  EXPECT_EQ(check("rest", "FAULT_TRAINING=cudnn"), 3) << said();
  EXPECT_TRUE(mentions(said(), " 0 failed, 2 absent, 0 cut short")) << said();
  expect_row("gpt2-124m, attention by cuDNN", "absent: [attention] expected cuDNN, got none");
  expect_row("gpt2-124m, our attention against cuDNN's", "absent: a training it is of said nothing");
  expect_row("gpt2-124m, 16 x 1024", "ok");
}

TEST_F(SoakGpuCheckReport, PeersThatAreMissingOrSayNothing) {
  EXPECT_EQ(check("rest", "FAULT_PEERS='no torch' FAULT_NCU='==ERROR== ERR_NVGPUCTRPERM'"), 3) << said();
  expect_row("PyTorch, compiled, beside", "absent: no PyTorch here");
  expect_rows({"gpt2-124m against PyTorch", "attention against FlashAttention-2", "attention against cuDNN"},
              "absent: nothing was compared");
  expect_rows(kLooks, "absent: this user may not read the GPU's counters");

  EXPECT_EQ(check("rest", "FAULT_PEERS='no cuDNN' FAULT_NCU='==WARNING== No kernels were profiled.'"), 1) << said();
  expect_row("PyTorch, compiled, beside", "absent: cuDNN of attention gpt2-124m/1024/forward;");
  expect_row("attention against FlashAttention-2", "ok, reached");
  expect_row("attention against cuDNN", "absent: nothing was compared");
  expect_rows(kLooks, "FAILED: ncu: no kernel was measured");

  EXPECT_EQ(check("rest", "FAULT_BENCH='no figures'"), 1) << said();
  expect_row("PyTorch, compiled, beside", "FAILED with 1");
  expect_row("llama-1.5b against PyTorch", "ok, reached");
  EXPECT_TRUE(mentions(report(), "bench_attention_cuda printed no figures: 'no figures")) << report();
}

TEST_F(SoakGpuCheckReport, WithoutAGpuNothingPasses) {
  for (const char* part : {"first", "rest"}) {
    EXPECT_EQ(check(part, "CUDA_VISIBLE_DEVICES= FAULT_TESTS=no-gpu FAULT_BENCH='skipped: no driver'"), 3) << said();
    EXPECT_TRUE(mentions(said(), " 0 failed")) << said();
    EXPECT_FALSE(mentions(report(), " passed")) << report();
    if (part == std::string("first")) {
      expect_rows(kTrainings, "absent: ");
      expect_rows({"tests of kernels", "racecheck of attention", "1.5B, kernels by name", "bench of attention", "PyTorch beside"},
                  "absent: ");
    }
  }
  expect_rows({"tests of parallel", "memcheck of all kernels", "PyTorch, compiled, beside", "a block's backward"}, "absent: ");
}

TEST_F(SoakGpuCheckReport, OneThatIsEndedInItsMidstIsSaidNotToBeDone) {
  const std::string ended = "PATH=" + std::string(kMachine) + ":$PATH FAULT_TESTS=hang timeout 3 " +
                            (place_ / "machine/gpu_check.sh").string() + " first " + (place_ / "out").string() + " >" +
                            (place_ / "said").string() + " 2>&1";
  EXPECT_NE(std::system(ended.c_str()), 0);
  EXPECT_TRUE(mentions(report(), "so far: FAILED, it has not come to its end")) << report();
  EXPECT_TRUE(fs::exists(place_ / "out/gpu_check.tar.gz"));
  // The check has six seconds in all, of which each step gets one.
  EXPECT_EQ(check("first", "GPU_CHECK_SECONDS=6"), 1) << said();
  expect_row("1.5B, optimizer on nvme", "FAILED: no time was left for it");
}

TEST_F(SoakGpuCheckReport, OverwritesNoReportThatIsNotIts) {
  EXPECT_EQ(check("all"), 2) << said();
  EXPECT_TRUE(mentions(said(), "usage: gpu_check.sh first|rest")) << said();
  fs::create_directories(place_ / "out");
  place_.write("out/report.md", "# My thesis\n");
  EXPECT_EQ(check("first"), 2) << said();
  EXPECT_EQ(place_.read("out/report.md"), "# My thesis\n");
}

// Compiles the library that a driver loads, and one that stands for CUPTI, and starts it as the driver would.
TEST_F(GpuCheckReportRelease, KernelTimesAreWhatCuptiRecords) {
  const auto runs = [&](const std::string& command) {
    return std::system(("cd " + place_.path().string() + " && ( " + command + " ) >said 2>&1").c_str()) == 0;
  };
  ASSERT_TRUE(runs("sed -n 's/^CUDAToolkit_CUPTI_INCLUDE_DIR[^=]*=//p' " SPILLWAY_BINARY_DIR "/CMakeCache.txt"));
  const std::string headers = said().substr(0, said().find('\n'));
  if (!fs::exists(fs::path(headers) / "cupti.h")) GTEST_SKIP() << "needs cupti.h of CUDA's toolkit";
  const std::string compile = "${CXX:-c++} -std=c++20 -shared -fPIC -isystem " + headers + " -o ";
  ASSERT_TRUE(runs(compile + "libcupti.so.13 " + kMachine + "cupti.cc")) << said();
  ASSERT_TRUE(runs(compile + "libkernel_times.so -fvisibility=hidden " SPILLWAY_SOURCE_DIR "/scripts/gpu_check/kernel_times.cc")) << said();
  const std::string start =
      "KERNEL_TIMES=times LD_LIBRARY_PATH=. python3 -c 'import ctypes; ctypes.CDLL(\"./libkernel_times.so\").InitializeInjection()'";
  ASSERT_TRUE(runs(start)) << said();
  EXPECT_EQ(place_.read("times"),
            "kernel\t100\t150\t7\t20\tspillway::copy(int)\nkernel\t200\t260\t-1\t-1\tplain\n"
            "copy\t120\t180\t4096\thost to device\nrange\t10\t90\t7\tForward 3\n");
  ASSERT_TRUE(runs("FAULT_CUPTI=1 " + start)) << said();
  EXPECT_TRUE(place_.read("times").starts_with("problem\tcuptiActivityEnable: planted\n")) << place_.read("times");
}

// Runs this build's programs on an emulated GPU. selftest and bench, which would be too slow there, do nothing and succeed.
class GpuCheckOnEmulatorMore : public GpuCheck {
 protected:
  void SetUp() override {
    ::setenv("SPILLWAY_EMULATED_GPUS", "1", 1);
    const GpuReport found = query_gpus();
    if (found.gpus.empty() || !mentions(found.gpus[0].name, "emulated")) GTEST_SKIP() << "needs emulated GPUs";
    GpuCheck::SetUp();
    // A driver would write what its kernels did.
    place_.write("machine/bin/spillway",
                 "#!/bin/sh\n[ -z \"$KERNEL_TIMES\" ] || cp \"$(dirname \"$0\")/../share/kernel_times.tsv\" "
                 "\"$KERNEL_TIMES\"\ncase $1 in selftest|bench) exit 0 ;; esac\nexec " SPILLWAY_PROGRAM " \"$@\"\n");
    for (const char* room : {"device", "eager", "kernels", "optim"}) {
      const std::string name = std::string("test_") + room;
      fs::remove(place_ / ("machine/bin/" + name));
      fs::create_symlink(SPILLWAY_BINARY_DIR "/tests/" + name, place_ / ("machine/bin/" + name));
    }
  }
  void TearDown() override { ::unsetenv("SPILLWAY_EMULATED_GPUS"); }
};

// The time table is four times as long, for a CPU that computes in the GPU's place.
TEST_F(GpuCheckOnEmulatorMore, FirstComesToItsEndWithAPlantedFault) {
  // A GPU whose blocks have too little shared memory for attention on tensor cores.
  const fs::path kernels = place_ / "machine/bin/test_kernels";
  fs::remove(kernels);
  place_.write("machine/bin/test_kernels",
               "#!/bin/sh\nSPILLWAY_EMULATED_SHARED_BYTES=16384 exec " SPILLWAY_BINARY_DIR "/tests/test_kernels \"$@\"\n");
  fs::permissions(kernels, fs::perms::owner_all);
  fs::permissions(place_ / "machine/bin/spillway", fs::perms::owner_all);
  EXPECT_EQ(check("first", "GPU_CHECK_TINY=1 GPU_CHECK_SECONDS=1680"), 1) << said();
  EXPECT_TRUE(mentions(said(), " 3 failed, 1 absent, 0 cut short")) << said() << report();
  const std::string planted = "kernels/AttentionTwins.TheSameBitsWithLessSharedMemoryOnTensorCores";
  expect_row("tests of kernels", "FAILED: 1 tests");
  expect_row("again: " + planted, "looked: alone it ends with 1");
  expect_rows({"racecheck of attention", "memcheck of kernels"}, "FAILED: 0 complaints, AttentionTwins ended with 1");
  expect_row("1.5B against matmul", "absent: ");  // no rate of matrix products is measured
  expect_rows({"tests of device", "tests of optim", "tests of eager", "the same bits on all three", "1.5B, kernels by name"}, "ok");
  expect_rows(kTrainings, "ok");
  expect_time_table(420);
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
  // A lent machine takes at most 64 MiB in all, for this archive and the tree.
  std::uintmax_t bytes = 0;
  for (const auto& file : fs::directory_iterator(place.path())) {
    if (file.is_regular_file() && file.path().extension() == ".xz") bytes += file.file_size();
  }
  ASSERT_GT(bytes, 0u);
  ASSERT_EQ(run("cd " SPILLWAY_SOURCE_DIR " && git ls-files -z | xargs -0 stat -c %s | awk '{sum += $1} END {print sum}'"), 0);
  bytes += std::stoull(place.read("said"));
  EXPECT_LT(bytes, 64u << 20);
  for (const char* part : {"first", "rest"}) {
    EXPECT_EQ(run("CUDA_VISIBLE_DEVICES= " + unpacked + "/gpu_check.sh " + part + " " + (place / "out").string()), 3) << place.read("said");
    EXPECT_TRUE(mentions(place.read("said"), " 0 failed")) << place.read("said");
    const std::string report = place.read("out/report.md");
    const Args steps = part == std::string("first")
                           ? Args{"tests of kernels", "1.5B on the GPU", "memcheck of kernels", "bench of attention", "PyTorch beside"}
                           : Args{"tests of parallel", "tests of Python", "memcheck of all kernels", "a block's forward"};
    for (const std::string& step : steps) {
      EXPECT_TRUE(mentions(report, "| " + step + " | absent: ")) << step << " in\n" << report;
    }
  }
}

}  // namespace
}  // namespace spillway::test::gpu_check_test
