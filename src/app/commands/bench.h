// Declares the measurements of `spillway bench`. Each function takes a few seconds on the current stream and returns rows for the
// cache (calibration.h). Loops whose results are compared with each other take turns, one round each, so that a slow change of the
// machine's speed affects all of them alike. The result of a memory loop is its best round, because other load can only make a round
// slower. The result of a disk loop is its median round, because the disk's cache can make a round too fast. BenchRow::spread says how
// far the rounds differ. For use by one thread. Throws Error(refused) if memory or disk has no room, and Error(io) if the disk fails.
#pragma once
#include <functional>

#include "app/names/names.h"
#include "device/device.h"
#include "offload/io_engine.h"
#include "parallel/comm/communicator.h"
#include "trainer/node/calibration.h"
#include "trainer/settings/config.h"

namespace spillway::app {

/// BenchSize holds the sizes of the measurements. Tests use small ones.
struct BenchSize {
  int rounds = 7;                 // number of rounds; they are short, so that other load probably spares one
  double round_s = 0.15;          // least seconds for which a loop runs in a round
  i64 memory_bytes = 256 * kMiB;  // bytes of each of two arrays, far more than any cache
  i64 matmul_tokens = 512, matmul_width = 768;
  i64 parameters = 50'000'000;  // number of parameters that cpu-adam updates, of 16 bytes each
  i64 disk_bytes = kGiB;
  double disk_fill_s = 3;  // seconds to fill the file; a slow disk gets a file of what it writes in this time
  i64 gpu_tokens = 8192, gpu_width = 4096, gpu_bytes = 512 * kMiB, link_bytes = 256 * kMiB;
  i64 exchange_bytes = 64 * kMiB;  // bytes of the buffer that ranks reduce or gather; each rank has memory for two
};
/// Returns `size`, with smaller arrays if the granted memory is small.
BenchSize fitting(BenchSize size, i64 granted_bytes);

/// Timing is the time of one run of a loop.
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
/// Measures cpu-adam.f32. The ceiling is the time in which the 28 bytes
/// of one parameter are read and written at the bandwidth of memory.axpy.
std::vector<BenchRow> bench_adam(const BenchSize& size);
/// Measures disk.read, disk.write and disk.mixed with `engine`, on a file that is removed from its folder as soon as it is open.
std::vector<BenchRow> bench_disk(const BenchSize& size, const ScratchPath& path, offload::IoEngine& engine);
/// Measures gpu.matmul-f32 and gpu.matmul-bf16: activations [tokens, width] times weights
/// [width, 4 width]. All bench functions with a parameter `gpu` measure this one GPU.
std::vector<BenchRow> bench_gpu_matmul(const BenchSize& size, Device gpu);
/// Measures gpu.copy, a copy within the GPU's memory.
std::vector<BenchRow> bench_gpu_memory(const BenchSize& size, Device gpu);
/// Measures link.to-gpu and link.from-gpu: copies from and to page-locked host memory.
std::vector<BenchRow> bench_link(const BenchSize& size, Device gpu);
/// Collective. Measures communicator.reduce-scatter and communicator.all-gather as bytes that all
/// ranks together read and write per second. The ceiling is the rate of plain copies of as many bytes,
/// with one thread per rank and all ranks at once. Each rank returns rows that its own clock measured.
std::vector<BenchRow> bench_communicator(const BenchSize& size, parallel::Communicator& ranks);

}  // namespace spillway::app
