// Measures this node for one model, for a moment before the plan is chosen: forward and backward of each kind of block at the run's own
// shapes, the update of a tile, a checksum and a copy. The cost model uses the results; the rates of disks come from `bench` and its cache.
// Allocates memory for one block of each kind and releases it. One thread calls.
#pragma once
#include <vector>

#include "base/thread_pool.h"
#include "parallel/plan/plan.h"

namespace spillway::app {

/// Seconds that a block takes for one micro-batch. In `backward_more` the gradient is added to what the accumulator holds already.
/// `backward_input` is the first part of a backward in two parts, and is timed only if the schedule has such. The time to compute a head's
/// logits again is not included.
struct BlockSeconds {
  double forward = 0, backward = 0, backward_more = 0, backward_input = 0;
};

struct UnitSeconds {
  double tile_s = 0;                                         // updates one element in the run's format, by one thread in its cache
  double checksum_s = 0;                                     // checks one byte, by one thread in its cache
  double copy_s = 0;                                         // copies one byte from memory to memory, by all threads
  double update_s = 0;                                       // updates one element from and to memory, by all threads
  double norm_s = 0;                                         // adds the square of one element in memory to a sum, by all threads
  double sweep_s = 0;                                        // reads or writes one byte in passing, by all threads
  double gpu_update_s = 0, gpu_norm_s = 0, gpu_sweep_s = 0;  // the same as update_s, norm_s and sweep_s, by a GPU in its memory
};

/// Times all blocks of the request, and returns their seconds by block. Blocks with parameters of the same shapes take the same time.
/// Returns empty if the timing would need more than `budget_bytes`, or many seconds. `flops` is the machine's expected rate. Sets
/// `peak_bytes` to the memory that the timing took.
std::vector<BlockSeconds> time_blocks(const parallel::PlanRequest& request, Device device, Tf32 tf32, ThreadPool& threads, i64 budget_bytes,
                                      double flops, i64& peak_bytes);

/// Returns the floating-point operations per second of a matrix product with a few hundred rows, on all threads.
double time_products(DType type, ThreadPool& threads);

/// Measures the CPU's unit times.
void time_units(UnitSeconds& unit, const optim::StateFormat& format, ThreadPool& threads);
/// Measures a GPU's unit times, and the rate of copies to and from host memory.
void time_gpu_units(UnitSeconds& unit, const optim::StateFormat& format, Device gpu);

}  // namespace spillway::app
