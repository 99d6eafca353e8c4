// Benchmarks collectives between ranks that are threads, compared with a copy past the caches: 64 MiB in all, 2 and 4 ranks. Each
// iteration runs the collective and a copy that moves as many bytes with as many threads, one after the other on the same pages. The
// figures are those of the fastest run of either kind, since on a shared machine other runs are disturbed.
//   reduce_scatter: every rank's 64 MiB are read once, the sums' 64 MiB written once.
//   all_gather:     in place: every part is read once and written to the other ranks. Counters: GB/s and copy_GB/s (10^9 bytes read and
//   written), ratio = GB/s / copy_GB/s (0.8 is promised), threads = threads that move data.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "device/copy.h"
#include "device/memory_pool.h"
#include "device/stream.h"
#include "parallel/comm/communicator_local.h"

namespace spillway::parallel {
namespace {

constexpr i64 kBytes = 64 * kMiB;
constexpr int kMostRanks = 4;

// Holds the buffers of all ranks (the whole array and the parts) and those of the copy. All of them lie in pages of the same kind.
struct Bench {
  MemoryPool pool{"bench", kUnlimited};
  int threads;
  ThreadPool copying;
  Stream stream{Device::cpu(), &copying, &pool};
  Allocation memory = pool.allocate(2 * kMostRanks * kBytes, "buffers of all ranks, twice");
  std::vector<std::unique_ptr<Communicator>> ends;
  Parts parts{0};  // where each rank's part ends, in bytes

  explicit Bench(int ranks)
      : threads(std::min(ranks, static_cast<int>(std::max(1u, std::thread::hardware_concurrency())))),
        copying(threads),
        ends(make_local_communicators(ranks)) {
    for (int r = 0; r < ranks; ++r) parts.push_back((r + 1) * (kBytes / ranks));
    auto* numbers = reinterpret_cast<float*>(memory.data());
    for (i64 i = 0; i < 2 * kMostRanks * kBytes / 4; ++i) numbers[i] = static_cast<float>(i % 1021);
  }
  int ranks() const { return static_cast<int>(ends.size()); }
  std::span<std::byte> whole(int rank) { return {memory.data() + rank * kBytes, static_cast<size_t>(kBytes)}; }
  std::span<std::byte> part(int rank, i64 offset = 0) {
    const i64 begin = parts[static_cast<size_t>(rank)], end = parts[static_cast<size_t>(rank) + 1];
    return {memory.data() + offset + begin, static_cast<size_t>(end - begin)};
  }
  Parts parts_elems() const {
    Parts elems = parts;
    for (i64& limit : elems) limit /= 4;
    return elems;
  }
};

double seconds(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Makes one call on every rank and waits until all calls are done.
void on_all(Bench& bench, const std::function<Event(Communicator&, int)>& call) {
  std::vector<Event> events;
  for (int r = 0; r < bench.ranks(); ++r) events.push_back(call(*bench.ends[static_cast<size_t>(r)], r));
  for (const Event& event : events) event.wait();
}

// Measures the collective and a copy. `bytes` is the number of bytes that the collective reads and writes.
void beside_copy(benchmark::State& state, Bench& bench, i64 bytes, const std::function<void()>& collective) {
  const StreamScope scope(bench.stream);
  const auto copy = [&] {  // copies one half of the memory to the other, until as many bytes have moved as in the collective
    for (i64 left = bytes / 2; left > 0; left -= kMostRanks * kBytes)
      copy_past_caches(bench.memory.data() + kMostRanks * kBytes, bench.memory.data(), std::min(left, kMostRanks * kBytes));
  };
  collective(), copy();
  double collective_s = 1e9, copy_s = 1e9;
  for (auto _ : state) {
    const double elapsed = seconds(collective);
    state.SetIterationTime(elapsed);
    collective_s = std::min(collective_s, elapsed);
    copy_s = std::min(copy_s, seconds(copy));
  }
  state.counters["GB/s"] = static_cast<double>(bytes) * 1e-9 / collective_s;
  state.counters["copy_GB/s"] = static_cast<double>(bytes) * 1e-9 / copy_s;
  state.counters["ratio"] = copy_s / collective_s;
  state.counters["threads"] = bench.threads;
}

void reduce_scatter(benchmark::State& state) {
  Bench bench(static_cast<int>(state.range(0)));
  beside_copy(state, bench, (bench.ranks() + 1) * kBytes, [&] {
    on_all(bench, [&](Communicator& end, int r) {
      return end.reduce_scatter(bench.whole(r), bench.part(r, kMostRanks * kBytes), DType::f32, bench.parts_elems());
    });
  });
}

void all_gather(benchmark::State& state) {
  Bench bench(static_cast<int>(state.range(0)));
  beside_copy(state, bench, bench.ranks() * kBytes, [&] {
    on_all(bench, [&](Communicator& end, int r) { return end.all_gather(bench.part(r, r * kBytes), bench.whole(r), bench.parts); });
  });
}

BENCHMARK(reduce_scatter)->Arg(2)->Arg(4)->UseManualTime()->MinTime(1)->Unit(benchmark::kMillisecond);
BENCHMARK(all_gather)->Arg(2)->Arg(4)->UseManualTime()->MinTime(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace spillway::parallel

BENCHMARK_MAIN();
