#include "trainer/node/grant.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/trainer/support_trainer.h"
#include "trainer/node/launcher.h"

namespace spillway::trainer::grant_test {
namespace {

constexpr i64 kReserve = 300 * kMiB;

std::string bytes(i64 n) { return std::to_string(n) + "\n"; }

TEST(MemoryGrant, WithoutLimitsItIsWhatIsAvailable) {
  const MemoryGrant grant = memory_grant(FakeHost().host());
  EXPECT_EQ(grant.total_bytes, 16 * kGiB);
  EXPECT_EQ(grant.bytes, 12 * kGiB - kReserve);
  EXPECT_EQ(grant.bounded, "MemAvailable");
  EXPECT_EQ(memory_grant(FakeHost().host(), 4).bytes, 3 * kGiB - kReserve);
}

TEST(MemoryGrant, CgroupV2CountsEveryAncestor) {
  FakeHost fake;
  fake.file("/proc/self/cgroup", "0::/slice/job\n");
  fake.file("/sys/fs/cgroup/slice/job/memory.max", "max\n").file("/sys/fs/cgroup/slice/job/memory.current", bytes(kGiB));
  fake.file("/sys/fs/cgroup/slice/memory.max", bytes(4 * kGiB)).file("/sys/fs/cgroup/slice/memory.current", bytes(3 * kGiB));
  fake.file("/sys/fs/cgroup/slice/memory.stat", "anon 5\ninactive_file " + bytes(kGiB) + "active_file " + bytes(kGiB));
  const MemoryGrant grant = memory_grant(fake.host());
  EXPECT_EQ(grant.cgroup_limit_bytes, 4 * kGiB);
  EXPECT_EQ(grant.cgroup_use_bytes, kGiB);  // page cache does not count as use, since the kernel can drop it
  EXPECT_EQ(grant.bytes, 3 * kGiB - kReserve);
  EXPECT_EQ(grant.bounded, "the cgroup limit");
}

TEST(MemoryGrant, CgroupV2HighLimitsToo) {
  FakeHost fake;
  fake.file("/proc/self/cgroup", "0::/job\n");
  fake.file("/sys/fs/cgroup/job/memory.max", bytes(8 * kGiB)).file("/sys/fs/cgroup/job/memory.high", bytes(6 * kGiB));
  fake.file("/sys/fs/cgroup/job/memory.current", bytes(kGiB));
  EXPECT_EQ(memory_grant(fake.host()).bytes, 5 * kGiB - kReserve);
}

TEST(MemoryGrant, CgroupV1) {
  FakeHost fake;
  fake.file("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/cap\n0::/\n");
  fake.file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
      .file("/sys/fs/cgroup/memory/memory.usage_in_bytes", bytes(kGiB));
  EXPECT_EQ(memory_grant(fake.host()).cgroup_limit_bytes, std::nullopt);
  fake.file("/sys/fs/cgroup/memory/cap/memory.limit_in_bytes", bytes(2 * kGiB))
      .file("/sys/fs/cgroup/memory/cap/memory.usage_in_bytes", bytes(kGiB));
  fake.file("/sys/fs/cgroup/memory/cap/memory.stat", "cache 3\ntotal_inactive_file " + bytes(kGiB / 2));
  EXPECT_EQ(memory_grant(fake.host()).bytes, 2 * kGiB - kGiB / 2 - kReserve);
}

// Page cache of files that were read more than once (a model that an earlier start read too) is on the kernel's active list. The kernel
// can drop these pages as well, so they do not reduce the memory that a run may use.
TEST(MemoryGrant, FilesReadOftenAreDroppedToo) {
  const std::string files = "inactive_file " + bytes(kMiB), often = "active_file " + bytes(kGiB);
  FakeHost v1;
  v1.file("/proc/self/cgroup", "4:memory:/cap\n");
  v1.file("/sys/fs/cgroup/memory/cap/memory.limit_in_bytes", bytes(2 * kGiB));
  v1.file("/sys/fs/cgroup/memory/cap/memory.usage_in_bytes", bytes(kGiB + 2 * kMiB));
  v1.file("/sys/fs/cgroup/memory/cap/memory.stat", "total_mapped_file " + bytes(kGiB) + "total_" + files + "total_" + often);
  EXPECT_EQ(memory_grant(v1.host()).bytes, 2 * kGiB - kMiB - kReserve);
  FakeHost v2;
  v2.file("/proc/self/cgroup", "0::/job\n");
  v2.file("/sys/fs/cgroup/job/memory.max", bytes(2 * kGiB)).file("/sys/fs/cgroup/job/memory.current", bytes(kGiB + 2 * kMiB));
  v2.file("/sys/fs/cgroup/job/memory.stat", "file_mapped " + bytes(kGiB) + files + often);
  EXPECT_EQ(memory_grant(v2.host()).bytes, 2 * kGiB - kMiB - kReserve);
}

TEST(MemoryGrant, InACgroupNamespaceTheMountIsOurGroup) {
  FakeHost fake;
  fake.file("/proc/self/cgroup", "0::/../../elsewhere\n");
  fake.file("/sys/fs/cgroup/memory.max", bytes(kGiB)).file("/sys/fs/cgroup/memory.current", bytes(0));
  EXPECT_EQ(memory_grant(fake.host()).bytes, kGiB - kReserve);
}

TEST(MemoryGrant, Slurm) {
  EXPECT_EQ(memory_grant(FakeHost().env("SLURM_MEM_PER_NODE", "4096").host()).bytes, 4 * kGiB - kReserve);
  // the value 0 of SLURM means all memory of a node
  EXPECT_EQ(memory_grant(FakeHost().env("SLURM_MEM_PER_NODE", "0").host()).bounded, "MemAvailable");
  FakeHost per_cpu;
  per_cpu.env("SLURM_MEM_PER_CPU", "1024").env("SLURM_CPUS_ON_NODE", "3");
  EXPECT_EQ(memory_grant(per_cpu.host()).bytes, 3 * kGiB - kReserve);
  EXPECT_EQ(memory_grant(per_cpu.host()).bounded, "Slurm's memory");
}

TEST(MemoryGrant, NeverBelowZeroAndNeverGuessed) {
  EXPECT_EQ(memory_grant(FakeHost().env("SLURM_MEM_PER_NODE", "100").host()).bytes, 0);
  FakeHost fake;
  fake.file("/proc/meminfo", "MemTotal: 5 kB\n");
  EXPECT_THROW(memory_grant(fake.host()), Error);
}

TEST(CoreGrant, TheLeastDecides) {
  EXPECT_EQ(core_grant(FakeHost().host()).cores, 8);
  FakeHost fake;
  fake.file("/proc/thread-self/status", "Cpus_allowed_list:\t0-1,4,6-7\n");
  EXPECT_EQ(core_grant(fake.host()).cores, 5);
  fake.file("/proc/self/cgroup", "0::/job\n").file("/sys/fs/cgroup/job/cpu.max", "250000 100000\n");
  EXPECT_EQ(core_grant(fake.host()).cores, 2);
  EXPECT_EQ(core_grant(fake.host()).bounded, "the cgroup quota");
  fake.env("SLURM_CPUS_PER_TASK", "1");
  EXPECT_EQ(core_grant(fake.host()).bounded, "SLURM_CPUS_PER_TASK");
}

TEST(CoreGrant, QuotaOfCgroupV1AndOfLessThanACore) {
  FakeHost fake;
  fake.file("/proc/self/cgroup", "5:cpu,cpuacct:/j\n");
  fake.file("/sys/fs/cgroup/cpu/j/cpu.cfs_quota_us", "-1\n").file("/sys/fs/cgroup/cpu/j/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(core_grant(fake.host()).cores, 8);
  fake.file("/sys/fs/cgroup/cpu/j/cpu.cfs_quota_us", "50000\n");
  EXPECT_EQ(core_grant(fake.host()).cores, 1);
}

TEST(Budgets, WhatIsGivenIsTakenFirst) {
  MemoryGrant grant;
  grant.bytes = 10 * kGiB;
  grant.bounded = "MemAvailable";
  const auto split = [&](std::optional<i64> device, std::optional<i64> host) {
    const Budgets b = split_grant(grant, device, host);
    return std::pair(b.device_bytes / kGiB, b.host_bytes / kGiB);
  };
  EXPECT_EQ(split({}, {}), std::pair(i64{10}, i64{0}));
  EXPECT_EQ(split(3 * kGiB, {}), std::pair(i64{3}, i64{7}));
  EXPECT_EQ(split({}, 4 * kGiB), std::pair(i64{6}, i64{4}));
  EXPECT_EQ(split(3 * kGiB, 4 * kGiB), std::pair(i64{3}, i64{4}));
}

TEST(Budgets, AboveTheGrantIsRefused) {
  MemoryGrant grant;
  grant.bytes = 10 * kGiB;
  grant.bounded = "the cgroup limit";
  const i64 huge = std::numeric_limits<i64>::max() - 1;
  for (const auto& [device, host] : {std::pair(6 * kGiB, 5 * kGiB), std::pair(11 * kGiB, i64{0}), std::pair(huge, huge)}) {
    try {
      split_grant(grant, device, host);
      FAIL() << "not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::refused);
      EXPECT_NE(std::string(error.what()).find("bounded by the cgroup limit"), std::string::npos) << error.what();
    }
  }
}

TEST(Launcher, OnlyItsOwnVariablesCount) {
  EXPECT_EQ(detect_launcher(FakeHost().host()).name, "");
  // Any script may export WORLD_SIZE and RANK, so these two variables alone name no launcher.
  EXPECT_EQ(detect_launcher(FakeHost().env("WORLD_SIZE", "4").env("RANK", "1").host()).name, "");
  const Launcher torchrun = detect_launcher(
      FakeHost().env("TORCHELASTIC_RUN_ID", "x").env("WORLD_SIZE", "4").env("RANK", "1").env("LOCAL_WORLD_SIZE", "2").host());
  EXPECT_EQ(torchrun.name, "torchrun");
  EXPECT_EQ(torchrun.ranks, 4);
  EXPECT_EQ(torchrun.local_ranks, 2);
  const Launcher by_hand = detect_launcher(FakeHost().env("MASTER_ADDR", "n1").env("WORLD_SIZE", "4").env("RANK", "1").host());
  EXPECT_EQ(by_hand.name, "torchrun");
  EXPECT_EQ(by_hand.local_ranks, 1);
  // Spillway's own environment variables take precedence over mpirun's, even if mpirun started the launcher of Spillway.
  const Launcher own = detect_launcher(FakeHost()
                                           .env("SPILLWAY_RANKS", "3")
                                           .env("SPILLWAY_RANK", "2")
                                           .env("SPILLWAY_LOCAL_RANK", "2")
                                           .env("OMPI_COMM_WORLD_SIZE", "2")
                                           .env("OMPI_COMM_WORLD_RANK", "1")
                                           .host());
  EXPECT_EQ(own.name, "spillway");
  EXPECT_EQ(own.local_rank, 2);
  EXPECT_EQ(detect_launcher(FakeHost().env("OMPI_COMM_WORLD_SIZE", "2").env("OMPI_COMM_WORLD_RANK", "1").host()).rank, 1);
  const Launcher srun =
      detect_launcher(FakeHost().env("SLURM_NTASKS", "8").env("SLURM_STEP_NUM_TASKS", "8").env("SLURM_PROCID", "3").host());
  EXPECT_EQ(srun.name, "srun");
  EXPECT_EQ(srun.bare_slurm_tasks, 0);
  EXPECT_EQ(detect_launcher(FakeHost().env("SLURM_NTASKS", "8").env("SLURM_PROCID", "0").host()).bare_slurm_tasks, 8);
}

TEST(CoreGrant, RanksShareWhatIsNotTheirOwn) {
  EXPECT_EQ(core_grant(FakeHost().host(), 2, 2).cores, 4);
  EXPECT_EQ(core_grant(FakeHost().host(), 1, 2).cores, 8) << "bound by the launcher, each to cores of its own";
  EXPECT_EQ(core_grant(FakeHost().host(), 16, 16).cores, 1);
  EXPECT_EQ(core_grant(FakeHost().env("SLURM_CPUS_PER_TASK", "3").host(), 2, 2).cores, 3);
  const CoreGrant whole = core_grant(FakeHost().host());
  EXPECT_EQ(shared_cores_notice(8, whole), "");
  EXPECT_NE(shared_cores_notice(64, whole).find("64 ranks share 8 cores (limited by affinity)"), std::string::npos);
}

}  // namespace
}  // namespace spillway::trainer::grant_test
