// Tells how much of an instruction can be put on a GPU's queue without waiting for earlier work. Thread-safe: no state.
#pragma once
#include "parallel/state/stepper.h"

namespace spillway::parallel {

/// Returns true if the whole instruction is put on the queue (CUDA stream) of its lane, and false if the CPU takes part in it.
bool only_queued(const Instruction& i, const Plan& plan, const Stepper& stepper);

/// Returns true if the CPU's part of an instruction comes first, and the rest is on the queue (CUDA stream) of its lane and writes only
/// GPU memory. Asked only for instructions in which the CPU takes part. The CPU's part of an optimizer Step needs the results of earlier
/// instructions. In a Fetch (a copy to the device) or a Load (of micro-batches), only the part on the queue needs them, because only that
/// part uses GPU memory.
bool leaves_on_queue(const Instruction& i, const Plan& plan, const Stepper& stepper);

/// Returns true for a Fetch or Evict between GPU memory and page-locked host memory. The GPU's copy engines carry it out while the GPU
/// computes.
bool copied_by_gpu(const Instruction& i, const Placement& placement);

}  // namespace spillway::parallel
