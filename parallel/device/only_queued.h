// What a GPU can be told without waiting for it. Thread-safe: no state.
#pragma once
#include "parallel/state/stepper.h"

namespace spillway::parallel {

/// All that the instruction does is put on its lane's queue; else the CPU has a part in it.
bool only_queued(const Instruction& i, const Plan& plan, const Stepper& stepper);

/// Of what is not: when the CPU has done its part what is left of it is on the lane's queue, and writes the GPU's memory alone. A Step's
/// part reads what the instruction comes after; that of a Fetch or Load is to the GPU's memory no more than what is left.
bool leaves_on_queue(const Instruction& i, const Plan& plan, const Stepper& stepper);

/// A Fetch or Evict between the GPU's memory and page-locked memory: one of the GPU's own engines copies, beside its computing.
bool copied_by_gpu(const Instruction& i, const Placement& placement);

}  // namespace spillway::parallel
