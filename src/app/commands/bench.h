// The measurements of `bench`. Each function takes a few seconds on the current stream and returns rows for the cache (calibration.h).
// Loops whose results are compared with each other take turns, one round each, so that a slow change of the machine's speed affects all of
// them alike. The result of a memory loop is its best round, because other load can only make a round slower. The result of a disk loop is
// its median round, because the disk's cache can make a round too fast. BenchRow::spread says how far the rounds differ. For use by one
// thread. Throws Error(refused) if memory or disk has no room, and Error(io) from the disk.
#pragma once
#include <functional>

#include "app/names.h"
#include "device/device.h"
#include "offload/io_engine.h"
#include "parallel/comm/communicator.h"
#include "trainer/node/calibration.h"
#include "trainer/settings/config.h"

namespace spillway::app {

/// The sizes of the measurements. Small ones are for tests.
struct BenchSize {
  int rounds = 7;                 // number of rounds; they are short, so that other load is likely to spare at least one
  double round_s = 0.15;          // a loop runs at least this long in a round
  i64 memory_bytes = 256 * kMiB;  // size of each of two arrays, far beyond any cache
  i64 matmul_tokens = 512, matmul_width = 768;
  i64 parameters = 50'000'000;  // number of parameters that cpu-adam updates, 16 bytes each
  i64 disk_bytes = kGiB;
  double disk_fill_s = 3;  // seconds to fill the file; if a slow disk needs more, the file is what it wrote in this time
  i64 gpu_tokens = 8192, gpu_width = 4096, gpu_bytes = 512 * kMiB, link_bytes = 256 * kMiB;
  i64 exchange_bytes = 64 * kMiB;  // size of the buffer that ranks reduce or gather; each rank has room for two
};
/// Returns `size` with smaller arrays if the memory granted is tight.
BenchSize fitting(BenchSize size, i64 granted_bytes);

/// The time of one run of a loop.
struct Timing {
  double seconds = 0;  // seconds of one run in the best round
  double spread = 0;   // the median round's time / the best round's time - 1
};
Timing timing_of(std::vector<double> seconds);
std::vector<Timing> time_loops(const std::vector<std::function<void()>>& loops, const BenchSize& size);

/// Measures memory.axpy, memory.copy and memory.read. memory.read limits the speed of text generation, which only reads the weights.
std::vector<BenchRow> bench_memory(const BenchSize& size);
/// Measures matmul.f32 and matmul.bf16: activations [tokens, width] times weights [width, 4 width].
std::vector<BenchRow> bench_matmul(const BenchSize& size);
/// Measures cpu-adam.f32. The ceiling is the time in which the 28 bytes of one parameter are read and written at the bandwidth of
/// memory.axpy.
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
/// is the rate of plain copies of as many bytes, with one thread per rank and all ranks at once. All ranks call this function; each returns
/// rows that its own clock measured.
std::vector<BenchRow> bench_communicator(const BenchSize& size, parallel::Communicator& ranks);

}  // namespace spillway::app
