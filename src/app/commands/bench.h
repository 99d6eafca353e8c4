// The measurements of `bench`. Each function takes a few seconds on the current stream and returns rows for the cache (calibration.h).
// Loops that are compared run in turn, round by round, so that a drift of the machine affects all of them. A loop in memory counts by its
// best round, since anything else that runs can only slow it down; a disk counts by its median round, since disks have caches. The spread
// is kept. One thread calls. Throws Error(refused) if memory or disk has no room, and Error(io) from the disk.
#pragma once
#include <functional>

#include "app/flags/config.h"
#include "app/node/calibration.h"
#include "device/device.h"
#include "offload/io_engine.h"
#include "parallel/comm/communicator.h"

namespace spillway::app {

/// The sizes of the measurements. Small ones are for tests.
struct BenchSize {
  int rounds = 7;                 // short rounds, one of which may be undisturbed
  double round_s = 0.15;          // a loop runs at least this long in a round
  i64 memory_bytes = 256 * kMiB;  // size of each of two arrays, far beyond any cache
  i64 matmul_tokens = 512, matmul_width = 768;
  i64 parameters = 50'000'000;  // number of parameters that cpu-adam updates, 16 bytes each
  i64 disk_bytes = kGiB;
  double disk_fill_s = 3;  // a slow disk's file is as large as it could write in this time
  i64 gpu_tokens = 8192, gpu_width = 4096, gpu_bytes = 512 * kMiB, link_bytes = 256 * kMiB;
  i64 exchange_bytes = 64 * kMiB;  // size of the buffer that ranks reduce or gather; each rank has room for two
};
/// Returns `size` with smaller arrays if the memory granted is tight.
BenchSize fitting(BenchSize size, i64 granted_bytes);

/// The time of one run of a loop.
struct Timing {
  double seconds = 0;  // seconds of one run in the best round
  double spread = 0;   // the median round's time over that of the best, less 1
};
Timing timing_of(std::vector<double> seconds);
std::vector<Timing> time_loops(const std::vector<std::function<void()>>& loops, const BenchSize& size);

/// Measures memory.axpy, memory.copy and memory.read. The last one bounds generation, which only reads the weights.
std::vector<BenchRow> bench_memory(const BenchSize& size);
/// Measures matmul.f32 and matmul.bf16: activations [tokens, width] times weights [width, 4 width].
std::vector<BenchRow> bench_matmul(const BenchSize& size);
/// Measures cpu-adam.f32. Its ceiling is axpy's bandwidth over the 28 bytes of a parameter.
std::vector<BenchRow> bench_adam(const BenchSize& size);
/// Measures disk.read, disk.write and disk.mixed with `engine`, on a file that is removed from the folder as soon as it is open.
std::vector<BenchRow> bench_disk(const BenchSize& size, const ScratchPath& path, offload::IoEngine& engine);
/// Measures gpu.matmul-f32 and gpu.matmul-bf16: activations [tokens, width] times weights [width, 4 width]. This and the next two functions
/// measure one GPU.
std::vector<BenchRow> bench_gpu_matmul(const BenchSize& size, Device gpu);
/// Measures gpu.copy.
std::vector<BenchRow> bench_gpu_memory(const BenchSize& size, Device gpu);
/// Measures link.to-gpu and link.from-gpu: copies from and to page-locked host memory.
std::vector<BenchRow> bench_link(const BenchSize& size, Device gpu);
/// Measures communicator.reduce-scatter and communicator.all-gather as bytes that all ranks together read and write per second. The ceiling
/// is a copy of as many bytes by one thread per rank, all at once. All ranks call it; each returns rows by its own clock.
std::vector<BenchRow> bench_communicator(const BenchSize& size, parallel::Communicator& ranks);

}  // namespace spillway::app
