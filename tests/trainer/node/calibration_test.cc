// Tests the cache of a machine's measured rates: saved values are read back, and invalid values in the file never reach the planner.
#include "trainer/node/calibration.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "tests/trainer/support_trainer.h"

namespace spillway::trainer::calibration_test {
namespace {

namespace fs = std::filesystem;

class CalibrationTest : public testing::Test {
 protected:
  Host host() const {
    return {"/", [cache = folder_.path().string()](const char* name) -> std::optional<std::string> {
              return std::string(name) == "XDG_CACHE_HOME" ? std::optional(cache) : std::nullopt;
            }};
  }
  void write(const std::string& text) const {
    fs::create_directories(calibration_file(host()).parent_path());
    std::ofstream(calibration_file(host())) << text;
  }

  const TemporaryFolder folder_;
};

TEST_F(CalibrationTest, NothingMeasuredIsTheConstantsWithoutAWarning) {
  const Calibration c = load_calibration(host());
  EXPECT_FALSE(c.measured);
  EXPECT_EQ(c.warning, "");
  EXPECT_EQ(c.memory_bytes_per_s, Calibration().memory_bytes_per_s);
  EXPECT_EQ(c.disk("/").read_bytes_per_s, DiskRates().read_bytes_per_s);
  EXPECT_EQ(c.threads, 0);
}

TEST_F(CalibrationTest, WhatIsSavedComesBackAndIsMerged) {
  save_bench_rows({{.name = "memory.axpy", .path = "", .value = 3e10, .unit = "bytes/s", .ceiling = {}, .threads = 5},
                   {.name = "disk.read", .path = "/", .value = 2e9, .unit = "bytes/s", .ceiling = {}, .threads = 5}},
                  host());
  save_bench_rows({{.name = "disk.read", .path = "/", .value = 4e9, .unit = "bytes/s", .ceiling = {}, .threads = 5},
                   {.name = "cpu-adam.f32", .path = "", .value = 0.5, .unit = "ns/parameter", .ceiling = 0.25, .threads = 6}},
                  host());
  const Calibration c = load_calibration(host());
  EXPECT_TRUE(c.measured);
  EXPECT_EQ(c.warning, "");
  EXPECT_EQ(c.memory_bytes_per_s, 3e10);
  EXPECT_EQ(c.adam_ns_per_parameter, 0.5);
  EXPECT_EQ(c.matmul_flops_f32, Calibration().matmul_flops_f32);
  EXPECT_EQ(c.threads, 6);
  ASSERT_EQ(c.disks.size(), 1u);
  EXPECT_EQ(c.disks[0].read_bytes_per_s, 4e9);
  EXPECT_EQ(c.disks[0].write_bytes_per_s, DiskRates().write_bytes_per_s);
  // Saving the rates leaves no temporary file: the folder holds the cache file alone.
  const auto folder = calibration_file(host()).parent_path();
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
}

TEST_F(CalibrationTest, RanksAreMeasuredApart) {
  EXPECT_FALSE(load_calibration(host()).ranks_measured);
  save_bench_rows({{.name = "memory.copy", .path = "", .value = 3e10, .unit = "bytes/s", .ceiling = {}, .threads = 5},
                   {.name = "communicator.all-gather", .path = "", .value = 7e9, .unit = "bytes/s", .ceiling = 8e9}},
                  host());
  const Calibration c = load_calibration(host());
  EXPECT_TRUE(c.ranks_measured);
  EXPECT_EQ(c.all_gather_bytes_per_s, 7e9);
  EXPECT_EQ(c.reduce_scatter_bytes_per_s, Calibration().reduce_scatter_bytes_per_s);
  EXPECT_EQ(c.threads, 5);
}

TEST_F(CalibrationTest, APathTakesTheRatesOfItsFilesystem) {
  const fs::path measured = folder_.path() / "a", other = folder_.path() / "b" / "to be made";
  fs::create_directories(measured);
  fs::create_directories(other.parent_path());
  save_bench_rows({{.name = "disk.write", .path = measured.string(), .value = 7e8, .unit = "bytes/s", .ceiling = {}, .threads = 1}},
                  host());
  const Calibration c = load_calibration(host());
  EXPECT_EQ(c.disk(measured).write_bytes_per_s, 7e8);
  EXPECT_EQ(c.disk(other).write_bytes_per_s, 7e8);
  EXPECT_EQ(c.disk("/proc").write_bytes_per_s, DiskRates().write_bytes_per_s);
}

TEST_F(CalibrationTest, AJobsFolderThatIsGoneStillTellsOfItsDiskUntilTheNextIsMeasured) {
  const auto measure = [&](const std::string& job, double rate) {
    fs::create_directories(folder_.path() / job);
    save_bench_rows(
        {{.name = "disk.read", .path = (folder_.path() / job).string(), .value = rate, .unit = "bytes/s", .ceiling = {}, .threads = 1}},
        host());
  };
  measure("job1", 1e9);
  fs::remove(folder_.path() / "job1");
  EXPECT_EQ(load_calibration(host()).disk(folder_.path() / "job2").read_bytes_per_s, 1e9);
  measure("job2", 2e9);
  ASSERT_EQ(load_calibration(host()).disks.size(), 1u);
  EXPECT_EQ(load_calibration(host()).disk(folder_.path() / "job3").read_bytes_per_s, 2e9);
  measure("job3", 3e9);  // the folder of job2 still exists, so job3 gets a separate disk entry, the second
  EXPECT_EQ(load_calibration(host()).disks.size(), 2u);
}

TEST_F(CalibrationTest, NonsenseIsNotTaken) {
  const auto rejected = [&](const std::string& text) {
    write(text);
    const Calibration c = load_calibration(host());
    EXPECT_FALSE(c.measured) << text;
    EXPECT_NE(c.warning.find("[calibration]"), std::string::npos) << text;
    EXPECT_NE(c.warning.find("spillway bench"), std::string::npos) << text;
    EXPECT_EQ(c.warning.find('\n'), std::string::npos) << text;
    EXPECT_EQ(c.memory_bytes_per_s, Calibration().memory_bytes_per_s) << text;
  };
  for (const char* text : {"", "{", "[]", "7", "{}", R"({"format": 1, "rows": 3})", R"({"format": 2, "rows": []})", "\xff\xfe"})
    rejected(text);
  for (const char* value : {"0", "-1", "1e300", "1e999", "null", "\"fast\"", "[1]", "{}"}) {
    rejected(std::string(R"({"format": 1, "rows": [{"name": "memory.axpy", "unit": "bytes/s", "value": )") + value + "}]}");
  }
  rejected(R"({"format": 1, "rows": [{"name": "memory.axpy", "value": 1e10, "unit": "GB/s"}]})");
  rejected(R"({"format": 1, "rows": [{"name": "disk.read", "value": 1e9, "unit": "bytes/s"}]})");
  rejected(R"({"format": 1, "rows": [{"name": "disk.read", "value": 1e9, "unit": "bytes/s", "path": 3}]})");
  rejected(R"({"format": 1, "rows": ["memory.axpy"]})");
  rejected(std::string(2 << 20, ' '));
}

TEST_F(CalibrationTest, AGoodValueBesideABadOneStands) {
  write(R"({"format": 1, "rows": [{"name": "memory.axpy", "value": -3, "unit": "bytes/s"},
        {"name": "matmul.f32", "value": 2e11, "unit": "FLOP/s", "threads": 1e9}, {"name": "from the future", "value": "x"}]})");
  const Calibration c = load_calibration(host());
  EXPECT_TRUE(c.measured);
  EXPECT_EQ(c.matmul_flops_f32, 2e11);
  EXPECT_EQ(c.memory_bytes_per_s, Calibration().memory_bytes_per_s);
  EXPECT_EQ(c.threads, 0);
  EXPECT_NE(c.warning.find("memory.axpy has the value -3"), std::string::npos) << c.warning;
}

// New measurements that are three times slower than the saved ones are reported, since rates of a busy
// node would spoil predictions. New measurements that are far better than the saved ones are reported too.
TEST_F(CalibrationTest, WhatIsFarFromTheOldIsSaid) {
  const auto rows = [](double axpy, double adam, double read) {
    return std::vector<BenchRow>{{.name = "memory.axpy", .path = "", .value = axpy, .unit = "bytes/s", .ceiling = {}, .threads = 2},
                                 {.name = "cpu-adam.f32", .path = "", .value = adam, .unit = "ns/parameter", .ceiling = {}, .threads = 2},
                                 {.name = "disk.read", .path = "/", .value = read, .unit = "bytes/s", .ceiling = {}, .threads = 2}};
  };
  EXPECT_TRUE(far_from_kept(rows(3e10, 0.5, 2e9), host()).empty()) << "nothing is kept";
  save_bench_rows(rows(3e10, 0.5, 2e9), host());
  EXPECT_TRUE(far_from_kept(rows(2.5e10, 0.6, 1.6e9), host()).empty());
  const std::vector<std::string> far = far_from_kept(rows(1e10, 1.5, 6e9), host());
  ASSERT_EQ(far.size(), 3u);
  EXPECT_EQ(far[0].find("memory.axpy is 3.0 times slower"), 0u) << far[0];
  EXPECT_EQ(far[1].find("cpu-adam.f32 is 3.0 times slower"), 0u) << far[1];
  EXPECT_NE(far[1].find("measure again"), std::string::npos) << far[1];
  EXPECT_EQ(far[2], "disk.read of / is 3.0 times faster than the value saved before");
}

// A figure of a busy machine neither replaces one of an idle machine nor is stored where there is none.
TEST_F(CalibrationTest, FiguresOfABusyMachineAreNotKept) {
  const auto rows = [](double axpy, double copy, std::optional<double> busy) {
    return std::vector<BenchRow>{
        {.name = "memory.axpy", .path = "", .value = axpy, .unit = "bytes/s", .ceiling = {}, .threads = 2, .busy = busy},
        {.name = "memory.copy", .path = "", .value = copy, .unit = "bytes/s", .ceiling = {}, .threads = 2}};
  };
  save_bench_rows({rows(3e10, 2e10, 0.5)[0]}, host());
  EXPECT_FALSE(load_calibration(host()).measured);
  save_bench_rows(rows(3e10, 2e10, {}), host());
  EXPECT_TRUE(far_from_kept(rows(1e10, 2e10, 0.5), host()).empty());
  save_bench_rows(rows(1e10, 1.9e10, 0.5), host());
  EXPECT_EQ(load_calibration(host()).memory_bytes_per_s, 3e10);
  EXPECT_EQ(load_calibration(host()).copy_bytes_per_s, 1.9e10) << "measured while the machine was idle";
}

TEST_F(CalibrationTest, SavingOverAWrongFileMendsIt) {
  write("{");
  save_bench_rows({{.name = "matmul.bf16", .path = "", .value = 2e11, .unit = "FLOP/s", .ceiling = {}, .threads = 2}}, host());
  EXPECT_EQ(load_calibration(host()).matmul_flops_bf16, 2e11);
  EXPECT_EQ(load_calibration(host()).warning, "");
}

TEST_F(CalibrationTest, AFolderThatCannotBeMadeIsAnIoError) {
  std::ofstream(folder_.path() / "spillway") << "a file";
  const std::string said = message_of([&] { save_bench_rows({}, host()); });
  EXPECT_NE(said.find("XDG_CACHE_HOME"), std::string::npos) << said;
}

TEST_F(CalibrationTest, SharesOfRatesAndOfTimes) {
  const BenchRow rate{.name = "", .path = "", .value = 8, .unit = "bytes/s", .ceiling = 10, .threads = 1};
  const BenchRow time{.name = "", .path = "", .value = 2, .unit = "ns/parameter", .ceiling = 1, .threads = 1};
  EXPECT_EQ(rate.share(), 0.8);
  EXPECT_EQ(time.share(), 0.5);
  EXPECT_EQ(BenchRow().share(), std::nullopt);
}

}  // namespace
}  // namespace spillway::trainer::calibration_test
