#include "offload/io_engine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "offload/scratch_file.h"
#include "tests/offload/support_files.h"
#include "tests/support/faulty_engine.h"

namespace spillway::offload::io_engine_test {
namespace {

using test::Buffer;
using test::error_of;
using test::FaultySystem;
using test::fill_pattern;
using test::same;
using test::TemporaryFolder;

class Engines : public testing::TestWithParam<IoEngineKind> {
 protected:
  void SetUp() override {
    const ChosenEngine chosen = make_io_engine(IoEngineKind::automatic, 1);
    if (GetParam() == IoEngineKind::io_uring && chosen.engine->name() != "io_uring") GTEST_SKIP() << chosen.why;
  }
  std::unique_ptr<IoEngine> make(int queue_depth = 16) { return make_io_engine(GetParam(), queue_depth, system_).engine; }
  ScratchFile file(i64 bytes, const std::string& name = "data") { return ScratchFile::create(folder_ / name, bytes); }

  FaultySystem system_;
  TemporaryFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(All, Engines, testing::Values(IoEngineKind::io_uring, IoEngineKind::pread),
                         [](const auto& test) { return test.param == IoEngineKind::pread ? "pread" : "io_uring"; });

// Writes and reads random tiles and checks what it reads. Each thread owns the tiles whose
// number modulo the thread count is its own number, and remembers what it wrote.
void read_and_write_at_random(IoEngine& engine, const ScratchFile& file, i64 tile_bytes, i64 tiles, int thread, int threads) {
  std::mt19937 random(static_cast<u32>(thread));
  std::vector<u64> seed_of(static_cast<size_t>(tiles), 0);
  Buffer out(tile_bytes), in(tile_bytes), expected(tile_bytes);
  for (int round = 0; round < 60; ++round) {
    const i64 tile = static_cast<i64>(random() % static_cast<u32>(tiles / threads)) * threads + thread;
    u64& seed = seed_of[static_cast<size_t>(tile)];
    if (seed == 0 || random() % 2 == 0) {
      seed = random() + 1u;
      fill_pattern(out.span(), seed);
      engine.submit({&file, true, tile * tile_bytes, tile_bytes, out.data()}).wait();
    } else {
      fill_pattern(expected.span(), seed);
      engine.submit({&file, false, tile * tile_bytes, tile_bytes, in.data()}).wait();
      ASSERT_TRUE(same(in.span(), expected.span())) << "tile " << tile << " in round " << round;
    }
  }
}

TEST_P(Engines, ManyThreadsReadBackWhatTheyWrote) {
  constexpr int kThreads = 6;
  constexpr i64 kTile = 192 * kKiB, kTiles = 48;
  const auto engine = make(8);
  const ScratchFile file = this->file(kTile * kTiles);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back([&, t] { read_and_write_at_random(*engine, file, kTile, kTiles, t, kThreads); });
  for (std::thread& thread : threads) thread.join();
}

TEST_P(Engines, ManyRequestsInFlightFromOneThread) {
  constexpr i64 kTile = 64 * kKiB, kTiles = 200;
  const auto engine = make(4);
  const ScratchFile file = this->file(kTile * kTiles);
  Buffer out(kTile * kTiles), in(kTile * kTiles);
  fill_pattern(out.span(), 5);
  std::vector<Event> events;
  for (i64 t = 0; t < kTiles; ++t) events.push_back(engine->submit({&file, true, t * kTile, kTile, out.data() + t * kTile}));
  for (const Event& event : events) event.wait();
  events.clear();
  for (i64 t = kTiles; t-- > 0;) events.push_back(engine->submit({&file, false, t * kTile, kTile, in.data() + t * kTile}));
  for (const Event& event : events) event.wait();
  EXPECT_TRUE(same(in.span(), out.span()));
  EXPECT_LE(system_.most_at_work, 4);
}

TEST_P(Engines, LargeRequestsAreCutIntoPieces) {
  const auto engine = make(2);  // the queue has fewer slots than there are pieces, so the rest waits inside the engine
  const i64 bytes = 9 * kMiB + 4096;
  const ScratchFile file = this->file(bytes);
  Buffer out(bytes), in(bytes);
  fill_pattern(out.span(), 1);
  engine->submit({&file, true, 0, bytes, out.data()}).wait();
  EXPECT_EQ(system_.transfers, 10);
  engine->submit({&file, false, 0, bytes, in.data()}).wait();
  EXPECT_TRUE(same(in.span(), out.span()));
}

// Shows that transfers are resumed if the kernel itself transfers fewer bytes than requested.
TEST_P(Engines, TrueShortCountsAreResumed) {
  const auto engine = make();
  const i64 bytes = 2 * kMiB + 8192;
  const ScratchFile file = this->file(bytes);
  Buffer out(bytes), in(bytes);
  fill_pattern(out.span(), 2);
  system_.most_requested_bytes = 12288;
  engine->submit({&file, true, 0, bytes, out.data()}).wait();
  EXPECT_EQ(system_.transfers, 2 * ceil_div(kMiB, 12288) + 1);
  engine->submit({&file, false, 0, bytes, in.data()}).wait();
  EXPECT_TRUE(same(in.span(), out.span()));
}

// Shows that direct I/O repeats a block from its start if the kernel reports a count that is not a multiple of the alignment. What
// the kernel read beyond the count is damaged, so an engine that believes it got more than it was told fails here.
TEST_P(Engines, MisalignedShortCountsAreResumed) {
  const auto engine = make();
  const ScratchFile file = this->file(kMiB);
  Buffer out(kMiB), in(kMiB);
  fill_pattern(out.span(), 3);
  system_.most_reported_bytes = 65537;
  engine->submit({&file, true, 0, kMiB, out.data()}).wait();
  engine->submit({&file, false, 0, kMiB, in.data()}).wait();
  EXPECT_TRUE(same(in.span(), out.span()));
  EXPECT_GT(system_.transfers, 30);
}

TEST_P(Engines, InterruptionsAreRetried) {
  const auto engine = make();
  const ScratchFile file = this->file(kMiB);
  Buffer out(kMiB), in(kMiB);
  fill_pattern(out.span(), 4);
  for (const int error_number : {EINTR, EAGAIN}) {
    system_.error_number = error_number;
    system_.transfers = 0;
    system_.fail_at = 0;
    system_.failures = 7;
    engine->submit({&file, true, 0, kMiB, out.data()}).wait();
    EXPECT_EQ(system_.transfers, 8);
    engine->submit({&file, false, 0, kMiB, in.data()}).wait();
    EXPECT_TRUE(same(in.span(), out.span()));
  }
}

TEST_P(Engines, EndlessInterruptionIsAnError) {
  const auto engine = make();
  const ScratchFile file = this->file(4096);
  Buffer in(4096);
  system_.error_number = EAGAIN;
  system_.fail_at = 0;
  system_.failures = 1'000'000;
  const auto error = error_of([&] { engine->submit({&file, false, 0, 4096, in.data()}).wait(); });
  EXPECT_EQ(error.code, ErrorCode::io);
  EXPECT_TRUE(error.says("errno 11")) << error.text;
}

TEST_P(Engines, ErrorsNameFileOffsetErrnoAndCure) {
  const auto engine = make(1);
  const ScratchFile file = this->file(4 * kMiB);
  Buffer buffer(4 * kMiB);
  system_.fail_at = 2;
  const auto io = error_of([&] { engine->submit({&file, false, 0, 4 * kMiB, buffer.data()}).wait(); });
  EXPECT_EQ(io.code, ErrorCode::io);
  for (const char* part : {"read of", "Input/output error", "errno 5", "dmesg", "--nvme"}) EXPECT_TRUE(io.says(part)) << io.text;
  EXPECT_TRUE(io.says(file.path().string())) << io.text;
  EXPECT_TRUE(io.says("at offset 2097152 ")) << io.text;  // with a queue depth of 1, pieces end in order, so this one fails first
  system_.transfers = 0;
  system_.fail_at = 0;
  system_.error_number = ENOSPC;
  const auto full = error_of([&] { engine->submit({&file, true, kMiB, kMiB, buffer.data()}).wait(); });
  EXPECT_EQ(full.code, ErrorCode::io);
  for (const char* part : {"write of 1048576 bytes at offset 1048576 of", "errno 28", "another --nvme path"})
    EXPECT_TRUE(full.says(part)) << full.text;
}

// Simulates a kernel that completes no request until open() is called, and records the order of the requests.
class GatedSystem : public SystemCalls {
 public:
  i64 bytes_to_request(const Transfer& transfer) override {
    std::lock_guard lock(mutex_);
    asked.push_back(transfer.offset);
    return transfer.bytes;
  }
  i64 completed(const Transfer&, i64 result) override {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [&] { return open_; });
    return result;
  }
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }
  bool was_asked() {
    std::lock_guard lock(mutex_);
    return !asked.empty();
  }
  std::vector<i64> asked;

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

TEST_P(Engines, AFullQueueBlocksNobodyAndUrgentPiecesGoFirst) {
  GatedSystem system;
  const auto engine = make_io_engine(GetParam(), 1, system).engine;
  const ScratchFile file = this->file(8 * kMiB);
  Buffer buffer(8 * kMiB);
  std::vector<Event> events;
  const auto read = [&](i64 begin, i64 bytes, Priority priority) {
    events.push_back(engine->submit({&file, false, begin, bytes, buffer.data() + begin, priority}));
  };
  read(0, kMiB, Priority::normal);
  while (!system.was_asked()) std::this_thread::yield();  // waits until the only slot of the queue is taken
  read(kMiB, 2 * kMiB, Priority::normal);
  read(3 * kMiB, kMiB, Priority::normal);
  read(4 * kMiB, 2 * kMiB, Priority::urgent);
  read(6 * kMiB, kMiB, Priority::urgent);
  for (const Event& event : events) EXPECT_FALSE(event.ready());
  system.open();
  for (const Event& event : events) event.wait();
  EXPECT_EQ(system.asked, (std::vector<i64>{0, 4 * kMiB, 5 * kMiB, 6 * kMiB, kMiB, 2 * kMiB, 3 * kMiB}));
}

TEST_P(Engines, AFailedFlushIsAnErrorAndNotTriedAgain) {
  const auto engine = make();
  const ScratchFile file = this->file(4096);
  engine->flush(file);
  EXPECT_EQ(system_.flushes, 1);
  system_.flush_error = EIO;
  const auto error = error_of([&] { engine->flush(file); });
  EXPECT_EQ(error.code, ErrorCode::io);
  for (const std::string& part : {std::string("fdatasync of " + file.path().string()), std::string("errno 5"), std::string("dmesg")})
    EXPECT_TRUE(error.says(part)) << error.text;
  EXPECT_EQ(system_.flushes, 2);  // flush() is not repeated: a second call would succeed although the bytes were not written
}

TEST_P(Engines, TheEventWaitsForTheWholeRequestEvenAfterAnError) {
  const auto engine = make();
  const ScratchFile file = this->file(8 * kMiB);
  Buffer buffer(8 * kMiB);
  system_.fail_at = 0;
  system_.delay_us = 3000;
  EXPECT_EQ(error_of([&] { engine->submit({&file, true, 0, 8 * kMiB, buffer.data()}).wait(); }).code, ErrorCode::io);
  EXPECT_EQ(system_.transfers, 8);
  EXPECT_EQ(system_.at_work, 0);
}

TEST_P(Engines, AnErrorStaysWithItsRequest) {
  const auto engine = make();
  const ScratchFile file = this->file(kMiB);
  Buffer out(kMiB), in(kMiB);
  fill_pattern(out.span(), 6);
  system_.fail_at = 0;
  EXPECT_EQ(error_of([&] { engine->submit({&file, true, 0, kMiB, out.data()}).wait(); }).code, ErrorCode::io);
  engine->submit({&file, true, 0, kMiB, out.data()}).wait();
  engine->submit({&file, false, 0, kMiB, in.data()}).wait();
  EXPECT_TRUE(same(in.span(), out.span()));
}

TEST_P(Engines, AnUnexpectedEndOfFileIsAnError) {
  const auto engine = make();
  const ScratchFile file = this->file(kMiB);
  Buffer in(kMiB);
  ASSERT_EQ(::truncate(file.path().c_str(), 256 * kKiB), 0);
  const auto error = error_of([&] { engine->submit({&file, false, 0, kMiB, in.data()}).wait(); });
  EXPECT_EQ(error.code, ErrorCode::io);
  EXPECT_TRUE(error.says("at offset 262144 of")) << error.text;
  EXPECT_TRUE(error.says("unexpected end of file")) << error.text;
}

TEST_P(Engines, AWriteThatMovesNothingIsAnError) {
  const auto engine = make();
  const ScratchFile file = this->file(4096);
  Buffer out(4096);
  system_.fail_at = 0;
  system_.error_number = 0;
  const auto error = error_of([&] { engine->submit({&file, true, 0, 4096, out.data()}).wait(); });
  EXPECT_EQ(error.code, ErrorCode::io);
  EXPECT_TRUE(error.says("give another --nvme path")) << error.text;
}

TEST_P(Engines, AFullFilesystemIsAnError) {
  const auto engine = make();
  const test::MountedFolder small("tmpfs", "size=8m");
  if (!small.mounted()) GTEST_SKIP() << small.why();
  const auto path = small.path() / "sparse";
  { const ScratchFile made = ScratchFile::create(path, 0, false); }
  ASSERT_EQ(::truncate(path.c_str(), 16 * kMiB), 0);
  const ScratchFile file = ScratchFile::open(path);
  EXPECT_FALSE(file.preallocated());
  Buffer out(16 * kMiB, 7);
  const auto error = error_of([&] { engine->submit({&file, true, 0, 16 * kMiB, out.data()}).wait(); });
  EXPECT_EQ(error.code, ErrorCode::io);
  EXPECT_TRUE(error.says("No space left on device (errno 28)")) << error.text;
  EXPECT_TRUE(error.says("another --nvme path")) << error.text;
}

TEST_P(Engines, OffsetsBeyond4GiB) {
  const auto engine = make();
  const auto path = folder_ / "sparse";
  { const ScratchFile made = ScratchFile::create(path, 0, false); }
  ASSERT_EQ(::truncate(path.c_str(), 9 * kGiB), 0);
  const ScratchFile file = ScratchFile::open(path, true);
  ASSERT_EQ(file.bytes(), 9 * kGiB);
  Buffer low(4096, 1), high(4096, 2), in(4096);
  const i64 far = 8 * kGiB + 4096;  // this offset equals that of `low` in the lower 32 bits
  engine->submit({&file, true, 4096, 4096, low.data()}).wait();
  engine->submit({&file, true, far, 4096, high.data()}).wait();
  engine->submit({&file, false, 4096, 4096, in.data()}).wait();
  EXPECT_TRUE(same(in.span(), low.span()));
  engine->submit({&file, false, far, 4096, in.data()}).wait();
  EXPECT_TRUE(same(in.span(), high.span()));
}

TEST_P(Engines, BrokenPromisesAreBugs) {
  const auto engine = make();
  const ScratchFile file = this->file(64 * kKiB);
  Buffer buffer(64 * kKiB);
  const auto code = [&](IoRequest request) { return error_of([&] { engine->submit(request); }).code; };
  EXPECT_EQ(code({&file, false, 60 * kKiB, 8192, buffer.data()}), ErrorCode::bug);
  EXPECT_EQ(code({&file, false, -4096, 4096, buffer.data()}), ErrorCode::bug);
  EXPECT_EQ(code({&file, false, 0, 4096, nullptr}), ErrorCode::bug);
  EXPECT_EQ(code({nullptr, false, 0, 4096, buffer.data()}), ErrorCode::bug);
  engine->submit({&file, false, 64 * kKiB, 0, nullptr}).wait();  // an empty transfer succeeds
  if (!file.direct()) GTEST_SKIP() << "no O_DIRECT on " << file.path();
  EXPECT_EQ(code({&file, false, 512, 4096, buffer.data()}), ErrorCode::bug);
  EXPECT_EQ(code({&file, false, 0, 512, buffer.data()}), ErrorCode::bug);
  EXPECT_EQ(code({&file, false, 0, 4096, buffer.data() + 512}), ErrorCode::bug);
}

TEST_P(Engines, TheDestructorWaits) {
  auto engine = make();
  const ScratchFile file = this->file(4 * kMiB);
  Buffer out(4 * kMiB);
  system_.delay_us = 2000;
  const Event event = engine->submit({&file, true, 0, 4 * kMiB, out.data()});
  engine.reset();
  EXPECT_TRUE(event.ready());
}

// Shows that the pread engine runs 16 pieces at a time on one drive and 32 on two drives, but never more than the queue depth.
TEST(PreadThreads, AreAsManyAsDrivesNeed) {
  const test::MountedFolder other("tmpfs", "size=4m");
  if (!other.mounted()) GTEST_SKIP() << other.why();
  const TemporaryFolder folder;
  const ScratchFile files[] = {ScratchFile::create(folder / "a", kMiB), ScratchFile::create(other.path() / "b", kMiB)};
  Buffer buffer(kMiB);
  for (const auto& [depth, most] : {std::pair(64, std::pair(16, 32)), {24, {16, 24}}, {1, {1, 1}}}) {
    FaultySystem system;
    system.delay_us = 2000;
    const auto engine = make_io_engine(IoEngineKind::pread, depth, system).engine;
    const auto at_once = [&, most = most](size_t drives, i64 expected) {
      system.hold_until_at_work = expected;
      std::vector<Event> events;
      for (i64 n = 0; n < 4 * most.second; ++n) {
        events.push_back(engine->submit({&files[static_cast<size_t>(n) % drives], false, n * 4096, 4096, buffer.data() + n * 4096}));
      }
      for (const Event& event : events) event.wait();
      return system.most_at_work.load();
    };
    EXPECT_EQ(at_once(1, most.first), most.first) << depth;
    EXPECT_EQ(at_once(2, most.second), most.second) << depth;
  }
}

TEST(EngineChoice, PreadStandsInForARefusedUringAndSaysWhy) {
  const std::pair<int, const char*> causes[] = {
      {EPERM, "EPERM: seccomp"}, {ENOSYS, "ENOSYS"}, {ENOMEM, "memlock"}, {EMFILE, "open files"}, {EBUSY, "errno 16"}};
  for (const auto& [refusal, cause] : causes) {
    FaultySystem system;
    system.uring_refusal = refusal;
    const ChosenEngine chosen = make_io_engine(IoEngineKind::automatic, 8, system);
    EXPECT_EQ(chosen.engine->name(), "pread");
    EXPECT_NE(chosen.why.find("refused io_uring"), std::string::npos) << chosen.why;
    EXPECT_NE(chosen.why.find(cause), std::string::npos) << chosen.why;
    EXPECT_NE(chosen.why.find("more CPU"), std::string::npos) << chosen.why;  // the message names the cost of the pread engine
    const auto error = error_of([&] { make_io_engine(IoEngineKind::io_uring, 8, system); });
    EXPECT_EQ(error.code, ErrorCode::io);
    EXPECT_TRUE(error.says(cause) && error.says("--io-engine pread")) << error.text;
  }
}

TEST(EngineChoice, UringWhereTheKernelHasIt) {
  const ChosenEngine chosen = make_io_engine(IoEngineKind::automatic);
  if (chosen.engine->name() == "pread") GTEST_SKIP() << chosen.why;
  EXPECT_EQ(chosen.why, "io_uring, queue depth 64");
}

TEST(EngineChoice, SenselessQueueDepths) {
  for (const int depth : {0, -1, 1 << 20}) EXPECT_EQ(error_of([&] { make_io_engine(IoEngineKind::pread, depth); }).code, ErrorCode::usage);
}

}  // namespace
}  // namespace spillway::offload::io_engine_test
