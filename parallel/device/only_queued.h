// Tells which instructions a GPU can be given without waiting for it. Thread-safe: no state.
#pragma once
#include "parallel/state/stepper.h"

namespace spillway::parallel {

/// Returns true if the instruction is entirely put on its lane's queue; otherwise the CPU takes part in it.
bool only_queued(const Instruction& i, const Plan& plan, const Stepper& stepper);

/// For an instruction in which the CPU takes part: returns true if, after the CPU's part, the rest is on the lane's queue and writes only
/// GPU memory. The CPU's part of a Step reads results of the instructions before it. That of a Fetch or Load does not: only the queued rest
/// touches GPU memory.
bool leaves_on_queue(const Instruction& i, const Plan& plan, const Stepper& stepper);

/// Returns true for a Fetch or Evict between GPU memory and page-locked memory, which the GPU's copy engines carry out while it computes.
bool copied_by_gpu(const Instruction& i, const Placement& placement);

}  // namespace spillway::parallel
