// What `bench` measures: each function takes a few seconds on the stream in force and gives rows for the cache (calibration.h). Loops that
// are compared run in turn, round by round, so that a drift of the machine meets all of them; loops in memory are as fast as their best
// round, since whatever else runs only takes away, disks as their middle one, for they have caches. The spread is kept. One thread calls.
// Errors: Error(refused) when memory or disk has no room, Error(io) from the disk.
#pragma once
#include <functional>

#include "app/flags/config.h"
#include "app/node/calibration.h"
#include "device/device.h"
#include "offload/io_engine.h"
#include "parallel/comm/communicator.h"

namespace spillway::app {

/// Small ones are for tests.
struct BenchSize {
  int rounds = 7;                 // short looks, of which one may be undisturbed
  double round_s = 0.15;          // a loop runs at least so long in a round
  i64 memory_bytes = 256 * kMiB;  // of each of two arrays, far beyond any cache
  i64 matmul_tokens = 512, matmul_width = 768;
  i64 parameters = 50'000'000;  // 16 bytes each
  i64 disk_bytes = kGiB;
  double disk_fill_s = 3;  // a slow disk's file is what it took by then
  i64 gpu_tokens = 8192, gpu_width = 4096, gpu_bytes = 512 * kMiB, link_bytes = 256 * kMiB;
  i64 exchange_bytes = 64 * kMiB;  // of the whole that ranks sum or gather; each has room for two
};
/// Smaller arrays where the memory granted is tight.
BenchSize fitting(BenchSize size, i64 granted_bytes);

/// Of one run of a loop.
struct Timing {
  double seconds = 0;  // in the best round
  double spread = 0;   // the middle round's over that, less 1
};
Timing timing_of(std::vector<double> seconds);
std::vector<Timing> time_loops(const std::vector<std::function<void()>>& loops, const BenchSize& size);

/// memory.axpy, memory.copy, memory.read: the last is what generation can take of weights, which it only reads
std::vector<BenchRow> bench_memory(const BenchSize& size);
/// matmul.f32, matmul.bf16: activations [tokens, width] times weights [width, 4 width]
std::vector<BenchRow> bench_matmul(const BenchSize& size);
/// cpu-adam.f32; its ceiling is axpy's bandwidth over the 28 bytes of a parameter
std::vector<BenchRow> bench_adam(const BenchSize& size);
/// disk.read, disk.write, disk.mixed by `engine`, on a file that is gone from the folder as soon as it is open
std::vector<BenchRow> bench_disk(const BenchSize& size, const ScratchPath& path, offload::IoEngine& engine);
/// gpu.matmul-f32 and gpu.matmul-bf16: activations [tokens, width] times weights [width, 4 width]. What follows is of one GPU.
std::vector<BenchRow> bench_gpu_matmul(const BenchSize& size, Device gpu);
/// gpu.copy
std::vector<BenchRow> bench_gpu_memory(const BenchSize& size, Device gpu);
/// link.to-gpu, link.from-gpu: from and to page-locked host memory
std::vector<BenchRow> bench_link(const BenchSize& size, Device gpu);
/// communicator.reduce-scatter, communicator.all-gather: bytes that all ranks together read and write; the ceiling is a copy of as many by
/// a thread a rank, all at once. All ranks call it, and get rows of their own clocks.
std::vector<BenchRow> bench_communicator(const BenchSize& size, parallel::Communicator& ranks);

}  // namespace spillway::app
