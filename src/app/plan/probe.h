// What this node takes for this very model, timed for a moment before the plan is chosen: forward and backward of each kind of block at
// the run's own shapes, an update's tile, a checksum, a copy. The cost model works with it; `bench` and its cache know the disks. Takes
// memory for one block of each kind, and gives it back. One thread calls.
#pragma once
#include <vector>

#include "base/thread_pool.h"
#include "parallel/plan/plan.h"

namespace spillway::app {

/// Of one micro-batch. `more`: the gradient is added to what the accumulator holds. `input`: what of these the first part takes of a
/// backward in two, timed where the schedule has such. What makes a head's logits again is left out of all of them.
struct BlockSeconds {
  double forward = 0, backward = 0, backward_more = 0, backward_input = 0;
};

struct UnitSeconds {
  double tile_s = 0;                                         // an element's update in the run's format, by one thread in its cache
  double checksum_s = 0;                                     // a byte, by one thread in its cache
  double copy_s = 0;                                         // a byte from memory to memory, by all threads
  double update_s = 0;                                       // an element's update from and to memory, by all threads
  double norm_s = 0;                                         // an element's square in a sum, from memory, by all threads
  double sweep_s = 0;                                        // a byte of what is read or written in passing, by all threads
  double gpu_update_s = 0, gpu_norm_s = 0, gpu_sweep_s = 0;  // the same by a GPU in its memory
};

/// By block; blocks with parameters of the same shapes take the same time. Empty when it would need more than `budget_bytes`, or seconds on
/// end. `flops`: what to expect of the machine.
std::vector<BlockSeconds> time_blocks(const parallel::PlanRequest& request, Device device, Tf32 tf32, ThreadPool& threads, i64 budget_bytes,
                                      double flops, i64& peak_bytes);

/// Floating-point operations per second of a product of a few hundred rows, on all threads.
double time_products(DType type, ThreadPool& threads);

/// What the CPU takes.
void time_units(UnitSeconds& unit, const optim::StateFormat& format, ThreadPool& threads);
/// What a GPU takes, and copies to and from host memory.
void time_gpu_units(UnitSeconds& unit, const optim::StateFormat& format, Device gpu);

}  // namespace spillway::app
