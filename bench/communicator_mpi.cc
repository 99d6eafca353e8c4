// Benchmarks our collectives between processes against MPI's own, on the same buffers: 64 MiB of f32 in all, as many ranks as mpirun
// starts.
//   mpirun -n 2 build/release/bench/bench_communicator_mpi Each iteration runs a collective of Spillway and the same one of MPI, one
//   after the other. The figures are those of the fastest run of either library, since on a shared machine other runs are disturbed. The
//   ranks of one machine share its cores: use at least one core per rank, or both libraries wait for the scheduler. Counters: GB/s and
//   mpi_GB/s (10^9 bytes of the whole per second), ratio = GB/s / mpi_GB/s. Rank 0 prints.
#include <benchmark/benchmark.h>
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "device/memory_pool.h"
#include "parallel/comm/communicator_mpi_open.h"

namespace spillway::parallel {
namespace {

constexpr i64 kBytes = 64 * kMiB;
constexpr int kIterations = 40;  // number of iterations, which must be the same on all ranks

struct Bench {
  MemoryPool pool{"bench", kUnlimited};
  Allocation memory = pool.allocate(2 * kBytes, "a whole and a part");
  std::unique_ptr<Communicator> end = open_mpi_communicator();
  Parts parts{0};  // where each rank's part ends, in bytes

  Bench() {
    for (int r = 0; r < end->size(); ++r) parts.push_back((r + 1) * (kBytes / 4 / end->size()) * 4);
    auto* numbers = reinterpret_cast<float*>(memory.data());
    for (i64 i = 0; i < 2 * kBytes / 4; ++i) numbers[i] = static_cast<float>(i % 1021);
  }
  std::span<std::byte> whole() { return {memory.data(), static_cast<size_t>(parts.back())}; }
  std::span<std::byte> part() { return {memory.data() + kBytes, static_cast<size_t>(parts[1])}; }
  Parts parts_elems() const {
    Parts elems = parts;
    for (i64& limit : elems) limit /= 4;
    return elems;
  }
  int part_elems() const { return static_cast<int>(parts[1] / 4); }
};

// Returns the time in seconds from the moment when all ranks are ready until this rank is done.
double seconds(const std::function<void()>& body) {
  MPI_Barrier(MPI_COMM_WORLD);
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void beside_mpi(benchmark::State& state, const std::function<void()>& ours, const std::function<void()>& theirs) {
  double ours_s = 1e9, theirs_s = 1e9;
  for (auto _ : state) {
    const double elapsed = seconds(ours);
    state.SetIterationTime(elapsed);
    ours_s = std::min(ours_s, elapsed);
    theirs_s = std::min(theirs_s, seconds(theirs));
  }
  state.counters["GB/s"] = static_cast<double>(kBytes) * 1e-9 / ours_s;
  state.counters["mpi_GB/s"] = static_cast<double>(kBytes) * 1e-9 / theirs_s;
  state.counters["ratio"] = theirs_s / ours_s;
}

void reduce_scatter(benchmark::State& state, Bench& b) {
  beside_mpi(
      state, [&] { b.end->reduce_scatter(b.whole(), b.part(), DType::f32, b.parts_elems()).wait(); },
      [&] { MPI_Reduce_scatter_block(b.whole().data(), b.part().data(), b.part_elems(), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); });
}

void all_gather(benchmark::State& state, Bench& b) {
  beside_mpi(
      state, [&] { b.end->all_gather(b.part(), b.whole(), b.parts).wait(); },
      [&] { MPI_Allgather(b.part().data(), b.part_elems(), MPI_FLOAT, b.whole().data(), b.part_elems(), MPI_FLOAT, MPI_COMM_WORLD); });
}

void all_reduce(benchmark::State& state, Bench& b) {
  beside_mpi(
      state, [&] { b.end->all_reduce(b.whole(), DType::f32, Reduction::sum).wait(); },
      [&] { MPI_Allreduce(MPI_IN_PLACE, b.whole().data(), static_cast<int>(b.parts.back() / 4), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); });
}

class Silent : public benchmark::BenchmarkReporter {
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>&) override {}
};

void run(const char* name, void (*body)(benchmark::State&, Bench&), Bench& bench) {
  benchmark::RegisterBenchmark(name, [body, &bench](benchmark::State& state) { body(state, bench); })
      ->UseManualTime()
      ->Iterations(kIterations)
      ->Unit(benchmark::kMillisecond);
}

void run_all() {
  Bench bench;
  run("reduce_scatter", reduce_scatter, bench);
  run("all_gather", all_gather, bench);
  run("all_reduce", all_reduce, bench);
  Silent silent;
  bench.end->rank() == 0 ? benchmark::RunSpecifiedBenchmarks() : benchmark::RunSpecifiedBenchmarks(&silent);
}

}  // namespace
}  // namespace spillway::parallel

// MPI_THREAD_MULTIPLE is needed because Spillway's communicator and the benchmark both call MPI, each from a separate thread.
int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  benchmark::Initialize(&argc, argv);
  spillway::parallel::run_all();
  MPI_Finalize();
  return 0;
}
