// Tells how much of an instruction a GPU can be given without waiting for earlier work. Thread-safe: no state.
#pragma once
#include "parallel/state/stepper.h"

namespace spillway::parallel {

/// Returns true if the whole instruction is put on the queue of its lane; false if the CPU takes part in it.
bool only_queued(const Instruction& i, const Plan& plan, const Stepper& stepper);

/// For instructions in which the CPU takes part. Returns true if the CPU's part comes first and the rest is on the lane's queue and writes
/// only GPU memory. In a Step, the CPU's part reads results of the instructions before it. In a Fetch or Load it does not; only the rest,
/// which is on the queue, uses GPU memory.
bool leaves_on_queue(const Instruction& i, const Plan& plan, const Stepper& stepper);

/// Returns true for a Fetch or Evict between GPU memory and page-locked host memory. The GPU's copy engines carry it out while the GPU
/// computes.
bool copied_by_gpu(const Instruction& i, const Placement& placement);

}  // namespace spillway::parallel
