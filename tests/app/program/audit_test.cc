// Tests the audit of predicted against measured values, the meter of disk use, and what a cgroup's limits leave of a disk's rates.
#include "trainer/record/audit.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <regex>

#include "tests/app/support_app.h"
#include "trainer/node/disk_limit.h"
#include "trainer/node/process_memory.h"

namespace spillway::app::audit_test {
namespace {

using parallel::Resource;

StepSample sample(double seconds, const StepCost& predicted) {
  StepSample s;
  s.seconds = s.account.seconds = seconds;
  s.account.chain_s[static_cast<size_t>(Resource::disk)] = seconds;
  s.phases = {{"forward", seconds * 1e3}};
  s.disk = {.read_s = seconds, .write_s = 0, .either_s = seconds, .read_bytes = 1'000'000'000, .written_bytes = 0};
  s.predicted = &predicted;
  return s;
}

TEST(Audit, TheFirstStepsCountOnlyAlone) {
  StepCost cost;
  cost.seconds = 2;
  Audit audit;
  audit.step(sample(100, cost));
  EXPECT_DOUBLE_EQ(audit.rows({})[0].measured, 100);
  audit.step(sample(50, cost));
  EXPECT_DOUBLE_EQ(audit.rows({})[0].measured, 50);
  audit.step(sample(1, cost));
  audit.step(sample(3, cost));
  EXPECT_EQ(audit.steps(), 2);
  EXPECT_DOUBLE_EQ(audit.rows({})[0].measured, 2);
  EXPECT_DOUBLE_EQ(audit.rows({})[0].predicted, 2);
}

TEST(Audit, SaysWhatBoundedAndWhatWouldHelp) {
  StepCost cost;
  Audit audit;
  audit.step(sample(1, cost));
  Levers levers;
  levers.stripes = 1;
  levers.low_moments_left = true;
  levers.spilled_state_bytes = kGiB;
  levers.disk_bytes_per_s = 2e9;
  const std::string text = audit.verdict(levers);
  EXPECT_NE(text.find("bound by disk (100 % of the step; disk 1.00 GB/s while busy, 100 % of the time; 2.00 GB/s was expected"),
            std::string::npos)
      << text;
  for (const char* piece : {"--host-memory", "1.00 GiB of optimizer state", "second --nvme", "--moments bf16"})
    EXPECT_NE(text.find(piece), std::string::npos) << piece << " in: " << text;
  EXPECT_EQ(text.find("--master-weights"), std::string::npos) << text;
}

TEST(Audit, RowsShowHowFarOff) {
  const std::string text = to_text({{"step", 2, 3}, {"peak device", 1024, 1024, true}}, 5, {});
  EXPECT_NE(text.find("audit, means of 5 steps"), std::string::npos) << text;
  EXPECT_NE(text.find("+50 %"), std::string::npos) << text;
  EXPECT_NE(text.find("1.00 KiB    1.00 KiB\n"), std::string::npos) << text;
}

// DiskMeter counts operations and bytes exactly. Its times depend on the clock and are not checked.
TEST(DiskMeter, CountsWhatTheKernelMoved) {
  DiskMeter meter(offload::SystemCalls::real());
  const offload::Transfer read{.descriptor = 3, .write = false, .offset = 0, .bytes = 4096},
      write{.descriptor = 3, .write = true, .bytes = 512};
  EXPECT_EQ(meter.bytes_to_request(read), 4096);
  EXPECT_EQ(meter.bytes_to_request(write), 512);
  EXPECT_EQ(meter.completed(read, 4096), 4096);
  EXPECT_EQ(meter.completed(write, -5), -5);
  const DiskUse use = meter.use(), later = meter.use();
  EXPECT_EQ(use.read_bytes, 4096);
  EXPECT_EQ(use.written_bytes, 0);
  EXPECT_GE(use.either_s, use.read_s);
  EXPECT_EQ(later.either_s, use.either_s);  // the times are equal, because no transfer was in flight between the two readings
}

class DiskLimits : public testing::Test {
 protected:
  Host host() const {
    return {folder_.path(), [](const char*) { return std::nullopt; }};
  }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((folder_.path() / name).parent_path());
    folder_.write(name, text);
  }
  const TemporaryFolder folder_;
};

TEST_F(DiskLimits, OfVersionOneTheTightestLevel) {
  write("proc/self/cgroup", "5:blkio:/jobs/mine\n");
  write("sys/fs/cgroup/blkio/jobs/mine/blkio.throttle.read_bps_device", "8:0 400000000\n8:16 5\n");
  write("sys/fs/cgroup/blkio/jobs/blkio.throttle.read_bps_device", "8:0 200000000\n");
  const DiskLimit limit = cgroup_disk(host(), "8:0");
  EXPECT_EQ(limit.read_bytes_per_s, 2e8);
  EXPECT_FALSE(limit.write_bytes_per_s);
}

TEST_F(DiskLimits, OfVersionTwo) {
  write("proc/self/cgroup", "0::/mine\n");
  write("sys/fs/cgroup/mine/io.max", "8:16 rbps=7 wbps=7 riops=max wiops=max\n8:0 rbps=max wbps=200000000 riops=max wiops=max\n");
  const DiskLimit limit = cgroup_disk(host(), "8:0");
  EXPECT_FALSE(limit.read_bytes_per_s);
  EXPECT_EQ(limit.write_bytes_per_s, 2e8);
}

TEST_F(DiskLimits, MakeRatesNoFaster) {
  const DiskRates fast{.path = "/x", .read_bytes_per_s = 2e9, .write_bytes_per_s = 2e9, .mixed_bytes_per_s = 2e9};
  EXPECT_EQ(fast.duplex(), 1);
  const DiskRates under = limited(fast, {2e8, 2e8});
  EXPECT_EQ(under.read_bytes_per_s, 2e8);
  EXPECT_EQ(under.duplex(), 2);  // the duplex is 2, because the cgroup limits reads and writes separately
  EXPECT_EQ(limited(fast, {}).mixed_bytes_per_s, 2e9);
}

TEST(ProcessMemory, KnowsThisProcess) {
  const ProcessMemory memory = process_memory();
  EXPECT_GT(memory.now_bytes, 0);
  EXPECT_GE(memory.peak_bytes, memory.now_bytes);
}

// Compares the process memory that the plan predicted with the measured peak. The tests run the real program as a separate process, since a
// test's process holds other memory too.
class ProcessLineRelease : public testing::Test {
 protected:
  // Runs train with `flags` and returns by how many percent the predicted process memory in the audit is off.
  int off(const std::string& flags) const {
    const std::string command =
        "cd " + folder_.path().string() + " && XDG_CACHE_HOME=. " SPILLWAY_PROGRAM " train --audit " + flags + " 2>&1";
    std::string text;
    FILE* pipe = ::popen(command.c_str(), "r");
    for (int c = 0; (c = std::fgetc(pipe)) != EOF;) text += static_cast<char>(c);
    EXPECT_EQ(::pclose(pipe), 0) << text;
    std::smatch line;
    const bool found = std::regex_search(text, line, std::regex("peak process +[0-9.]+ .iB +[0-9.]+ .iB(?: +([+-][0-9]+) %)?\n"));
    EXPECT_TRUE(found) << text;
    return found && line[1].matched ? std::stoi(line[1]) : 0;
  }
  void text() const {
    std::string all;
    for (int i = 0; i < 3000; ++i) all += "and it was so, for the king went out to the sea. ";
    folder_.write("t.txt", all);
  }
  static constexpr int kMostOff = 15;
  const TemporaryFolder folder_;
};

TEST_F(ProcessLineRelease, OfAFreshRunAndAResumedOne) {
  text();
  for (const char* steps : {"10", "20"})
    EXPECT_LE(std::abs(off(std::string("--model gpt2-tiny --data t.txt --out run --steps ") + steps)), kMostOff) << steps;
}

TEST_F(ProcessLineRelease, OfImages) {
  for (const char* name : {"data_batch_1.bin", "data_batch_2.bin", "test_batch.bin"}) {
    std::string images;
    for (int i = 0; i < 1000; ++i) images += static_cast<char>(i % 10) + std::string(3072, static_cast<char>(i));
    folder_.write(std::string("cifar/") + name, images);
  }
  EXPECT_LE(std::abs(off("--model cifar-net --data cifar --validation-data cifar --out run --steps 10")), kMostOff);
}

TEST_F(ProcessLineRelease, OfStateOnNvme) {
  text();
  EXPECT_LE(std::abs(off("--model llama-tiny --data t.txt --out run --steps 10 --nvme s --place-parameters nvme --place-gradients nvme "
                         "--place-optimizer nvme")),
            kMostOff);
}

// Tests the least time that a disk needs: with a duplex of 1 reads and writes share its rate, with 2 each proceeds as if it were alone.
TEST(Rates, TheDisksTimeForAMix) {
  Rates rates;
  rates.disk_read_bytes_per_s = 2;
  rates.disk_write_bytes_per_s = 1;
  rates.machine.duplex = 1;
  EXPECT_DOUBLE_EQ(rates.disk_s(4, 3), 5);
  rates.machine.duplex = 2;
  EXPECT_DOUBLE_EQ(rates.disk_s(4, 3), 3);
}

}  // namespace
}  // namespace spillway::app::audit_test
