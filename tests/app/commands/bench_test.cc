// Tests the measuring loops of the bench command against clocks and byte counts that the test itself keeps, and the command as a whole.
#include "app/commands/bench.h"

#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "app/commands/commands.h"
#include "base/error.h"
#include "device/memory_pool.h"
#include "device/stream.h"
#include "offload/system_calls.h"
#include "parallel/comm/communicator_local.h"
#include "tests/app/support_app.h"

namespace spillway::app::bench_test {
namespace {

namespace fs = std::filesystem;

BenchSize small() {
  return {.rounds = 5,
          .round_s = 0.002,
          .memory_bytes = 4 * kMiB,
          .matmul_tokens = 32,
          .matmul_width = 64,
          .parameters = 1 << 16,
          .disk_bytes = 24 * kMiB,
          .disk_fill_s = 60,
          .exchange_bytes = kMiB + 4};
}

class BenchTest : public testing::Test {
 protected:
  ThreadPool threads_{2};
  const Stream stream_{Device::cpu(), &threads_, &MemoryPool::heap()};
  const StreamScope scope_{stream_};
  const TemporaryFolder folder_;
};

// Forwards system calls, counts the bytes that the I/O engine moves, and fails reads with EIO while `failing` is set.
class CountingSystem final : public offload::SystemCalls {
 public:
  i64 completed(const offload::Transfer& transfer, i64 result) override {
    if (result > 0) (transfer.write ? written : read) += result;
    return failing && !transfer.write ? -EIO : result;
  }
  std::atomic<i64> read = 0, written = 0;
  bool failing = false;
};

TEST_F(BenchTest, ALoopsTimeIsItsBestRoundsAndTheSpreadSaysHowFarTheOthersAre) {
  int calls = 0;
  const auto pause = [](int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); };
  BenchSize size = small();
  size.round_s = 0.001;
  const auto s = time_loops({[&] { pause(++calls == 5 ? 4 : 40); }, [&] { pause(1); }}, size);
  EXPECT_GE(s[0].seconds, 0.004);
  EXPECT_LT(s[0].seconds, 0.04);
  EXPECT_GT(s[0].spread, 1);
  EXPECT_GE(s[1].seconds, 0.001);
  EXPECT_EQ(calls, 2 + size.rounds);  // one call to warm up, one to estimate the time, and one for each round
}

TEST_F(BenchTest, RowsOfTheLoops) {
  const auto memory = bench_memory(small()), matmul = bench_matmul(small()), adam = bench_adam(small());
  ASSERT_EQ(memory.size(), 3u);
  EXPECT_EQ(memory[0].name, "memory.axpy");
  EXPECT_EQ(memory[1].name, "memory.copy");
  EXPECT_EQ(memory[1].ceiling, memory[0].value);
  EXPECT_EQ(memory[2].name, "memory.read");
  ASSERT_EQ(matmul.size(), 2u);
  EXPECT_EQ(matmul[0].name, "matmul.f32");
  EXPECT_EQ(matmul[1].name, "matmul.bf16");
  ASSERT_EQ(adam.size(), 1u);
  EXPECT_EQ(adam[0].unit, "ns/parameter");
  for (const auto* rows : {&memory, &matmul, &adam}) {
    for (const BenchRow& row : *rows) {
      EXPECT_GT(row.value, row.unit == "ns/parameter" ? 1e-3 : 1e6) << row.name;
      EXPECT_LT(row.value, row.unit == "ns/parameter" ? 1e3 : 1e15) << row.name;
      EXPECT_EQ(row.threads, 2) << row.name;
    }
  }
}

// Measures a communicator of three ranks that are threads. The size of the buffer is not a multiple of three, so the ranks' parts differ.
TEST_F(BenchTest, RowsOfTheCommunicator) {
  std::vector<std::vector<BenchRow>> rows(3);
  std::vector<std::thread> ranks;
  auto ends = parallel::make_local_communicators(3);
  for (size_t r = 0; r < ends.size(); ++r) ranks.emplace_back([&, r] { rows[r] = bench_communicator(small(), *ends[r]); });
  for (std::thread& rank : ranks) rank.join();
  for (const auto& of_rank : rows) {
    ASSERT_EQ(of_rank.size(), 2u);
    EXPECT_EQ(of_rank[0].name, "communicator.reduce-scatter");
    EXPECT_EQ(of_rank[1].name, "communicator.all-gather");
    for (const BenchRow& row : of_rank) {
      EXPECT_GT(row.value, 1e5) << row.name;
      EXPECT_LT(row.value, 1e15) << row.name;
      EXPECT_GT(row.share(), 0.0) << row.name;
      EXPECT_EQ(row.unit, "bytes/s");
    }
  }
}

TEST_F(BenchTest, DiskMovesWhatItCountsAndLeavesNothing) {
  for (const auto kind : {offload::IoEngineKind::automatic, offload::IoEngineKind::pread}) {
    CountingSystem system;
    const offload::ChosenEngine engine = offload::make_io_engine(kind, offload::kQueueDepth, system);
    const auto rows = bench_disk(small(), {folder_.path().string(), std::nullopt}, *engine.engine);
    ASSERT_EQ(rows.size(), 3u);
    EXPECT_EQ(rows[0].name, "disk.read");
    EXPECT_EQ(rows[0].path, fs::canonical(folder_.path()).string());
    for (const BenchRow& row : rows) EXPECT_GT(row.value, 1e5) << row.name;
    // The command `bench` writes its file of 24 MiB once. Each of five rounds then reads 24 MiB, writes 24 MiB, and mixes reads of 12 MiB
    // with writes of 12 MiB.
    EXPECT_EQ(system.read, 5 * (24 + 12) * kMiB);
    EXPECT_EQ(system.written, (24 + 5 * (24 + 12)) * kMiB);
    EXPECT_TRUE(fs::is_empty(folder_.path()));
  }
}

TEST_F(BenchTest, DiskThatFailsSaysSo) {
  CountingSystem system;
  system.failing = true;
  const offload::ChosenEngine engine = offload::make_io_engine(offload::IoEngineKind::automatic, offload::kQueueDepth, system);
  EXPECT_NE(message_of([&] {
              bench_disk(small(), {folder_.path().string(), std::nullopt}, *engine.engine);
            }).find("[io]"),
            std::string::npos);
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

TEST_F(BenchTest, DiskKeepsToItsCeiling) {
  const offload::ChosenEngine engine = offload::make_io_engine(offload::IoEngineKind::automatic);
  const std::string said = message_of([&] { bench_disk(small(), {folder_.path().string(), 8 * kMiB}, *engine.engine); });
  EXPECT_NE(said.find("[bench] expected room"), std::string::npos) << said;
}

TEST(Bench, FitsTheMemoryGranted) {
  EXPECT_EQ(fitting({}, 64 * kGiB).memory_bytes, BenchSize().memory_bytes);
  EXPECT_EQ(fitting({}, 64 * kGiB).parameters, BenchSize().parameters);
  const BenchSize tight = fitting({}, 256 * kMiB);
  EXPECT_LE(2 * tight.memory_bytes, 256 * kMiB);
  EXPECT_LE(16 * tight.parameters, 256 * kMiB);
  EXPECT_LE(4 * tight.exchange_bytes, 256 * kMiB);
  EXPECT_GE(fitting({}, 0).memory_bytes, kMiB);
}

class BenchCommand : public testing::Test {
 protected:
  BenchCommand() { fake_.env("XDG_CACHE_HOME", cache_.path().string()); }
  Host host() const { return fake_.host(); }
  const TemporaryFolder cache_;
  FakeHost fake_;
};

TEST_F(BenchCommand, PrintsAndKeepsWhatItMeasured) {
  const Outcome text = run_app({"bench", "matmul", "--threads", "1"}, host());
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_NE(text.out.find("matmul.f32"), std::string::npos) << text.out;
  EXPECT_EQ(text.out.find("memory.axpy"), std::string::npos) << text.out;
  EXPECT_NE(text.err.find("saved to "), std::string::npos) << text.err;
  const Calibration kept = load_calibration(host());
  EXPECT_TRUE(kept.measured);
  EXPECT_EQ(kept.threads, 1);
  EXPECT_NE(kept.matmul_flops_f32, Calibration().matmul_flops_f32);
  EXPECT_NE(run_app({"doctor"}, host()).out.find("GFLOP/s, bf16"), std::string::npos);
}

// A clock by which the machine is busy from one sample to the next.
TEST_F(BenchCommand, FiguresOfABusyMachineAreShownAndNotKept) {
  const CpuClock busy = [samples = 0]() mutable {
    const double s = ++samples;
    return CpuSample{{{1, {.ran_s = s, .waited_s = s}}}, s, 2 * s};
  };
  const auto bench = [&](const CpuClock& clock, std::string* err) {
    std::ostringstream out, errors;
    BenchConfig config;
    config.what = {"matmul"};
    config.threads = 1;
    Console console(out, errors);
    EXPECT_EQ(run_bench(config, console, host(), clock), 0);
    *err = errors.str();
    return out.str();
  };
  std::string err;
  EXPECT_NE(bench(busy, &err).find("busy"), std::string::npos);
  EXPECT_NE(err.find("the machine was busy: its threads got 50 %"), std::string::npos) << err;
  EXPECT_EQ(err.find("saved to "), std::string::npos) << err;
  EXPECT_FALSE(load_calibration(host()).measured);
  EXPECT_EQ(bench([] { return CpuSample(); }, &err).find("busy"), std::string::npos);
  const double kept = load_calibration(host()).matmul_flops_f32;
  EXPECT_NE(kept, Calibration().matmul_flops_f32);
  bench(busy, &err);
  EXPECT_EQ(load_calibration(host()).matmul_flops_f32, kept);
}

TEST_F(BenchCommand, DiskNeedsAPath) {
  const Outcome outcome = run_app({"bench", "disk"}, host());
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("--nvme PATH"), std::string::npos) << outcome.err;
  EXPECT_FALSE(fs::exists(calibration_file(host())));
}

TEST_F(BenchCommand, ALinkIsADevices) {
  const Outcome outcome = run_app({"bench", "link"}, host());
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("[bench] expected a GPU to measure link"), std::string::npos) << outcome.err;
}

TEST_F(BenchCommand, StartsItsRanksItself) {
  fake_.env("RANK", "1").env("WORLD_SIZE", "4").env("LOCAL_RANK", "1");
  const Outcome outcome = run_app({"bench", "communicator"}, host());
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("torchrun started"), std::string::npos) << outcome.err;
}

TEST_F(BenchCommand, JsonIsWhatTheFileHolds) {
  const TemporaryFolder scratch;
  const Outcome outcome = run_app({"bench", "disk", "--nvme", scratch.path().string() + ":16MiB", "--json", "--quiet"}, host());
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const auto json = nlohmann::json::parse(outcome.out);
  ASSERT_EQ(json["rows"].size(), 3u);
  EXPECT_EQ(json["rows"][0]["name"], "disk.read");
  EXPECT_EQ(json["rows"][0]["unit"], "bytes/s");
  EXPECT_TRUE(json["rows"][0]["share"].is_null());
  EXPECT_EQ(load_calibration(host()).disk(scratch.path()).read_bytes_per_s, json["rows"][0]["value"]);
}

}  // namespace
}  // namespace spillway::app::bench_test
