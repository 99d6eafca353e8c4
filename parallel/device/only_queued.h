// What a GPU can be told without waiting for it. Thread-safe: no state.
#pragma once
#include "parallel/state/stepper.h"

namespace spillway::parallel {

/// All that the instruction does is put on its lane's queue; else the CPU has a part in it.
bool only_queued(const Instruction& i, const Plan& plan, const Stepper& stepper);

/// A Fetch or Evict between the GPU's memory and page-locked memory: one of the GPU's own engines copies, beside its computing.
bool copied_by_gpu(const Instruction& i, const Placement& placement);

}  // namespace spillway::parallel
