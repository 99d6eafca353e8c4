// Measures this node for one model, for a moment before the plan is chosen. The probe times forward and backward of each kind of block of
// the model at the run's own shapes, the optimizer's update of a tile (16,384 elements), a checksum and a copy. The cost model uses the
// results. Disks are measured elsewhere (disk_look.h). Allocates memory for one block of each kind and releases it. For use by one thread.
#pragma once
#include <vector>

#include "base/thread_pool.h"
#include "parallel/plan/plan.h"

namespace spillway::trainer {

/// BlockSeconds holds the seconds that a block of the model takes for one micro-batch. `backward` is for the first micro-batch,
/// which writes the gradients; `backward_more` is for later ones, which add to them. `backward_input` is the first part of a
/// backward, for schedules that divide it in two parts. For the last block the time to compute the logits again is not included.
struct BlockSeconds {
  double forward = 0, backward = 0, backward_more = 0, backward_input = 0;
};

struct UnitSeconds {
  double tile_s = 0;      // seconds in which one thread updates one element that is in its cache, in the state format of the run
  double checksum_s = 0;  // seconds in which one thread computes the checksum of one byte that is in its cache
  double copy_s = 0;      // seconds in which all threads together copy one byte from memory to memory
  double update_s = 0;    // seconds in which all threads together update one element from and to memory
  double norm_s = 0;      // seconds in which all threads together add the square of one element in memory to a sum
  double sweep_s = 0;     // seconds in which all threads together read or write one byte of a long array
  double gpu_update_s = 0, gpu_norm_s = 0, gpu_sweep_s = 0;  // like update_s, norm_s and sweep_s, for a GPU in its own memory
};

/// Times all blocks of the request, and returns their seconds by block. Blocks whose parameters have the same shapes take
/// the same time. Returns an empty list if the timing would need more than `budget_bytes` of memory, or many seconds.
/// `flops` is the FLOP/s that the machine is expected to reach. Sets `peak_bytes` to the memory that the timing took.
std::vector<BlockSeconds> time_blocks(const parallel::PlanRequest& request, Device device, Tf32 tf32, ThreadPool& threads, i64 budget_bytes,
                                      double flops, i64& peak_bytes);

/// Returns the floating-point operations per second of a matrix product with a few hundred rows, on all threads.
double time_products(DType type, ThreadPool& threads);

/// Measures the members of `unit` (times of single operations) that belong to the CPU.
void time_units(UnitSeconds& unit, const optim::StateFormat& format, ThreadPool& threads);
/// Measures the members of `unit` (times of single operations) that belong to a GPU, and the rate of copies to and from host memory.
void time_gpu_units(UnitSeconds& unit, const optim::StateFormat& format, Device gpu);

}  // namespace spillway::trainer
