// Tells how much of an instruction a GPU can be given without waiting for earlier work. Thread-safe: no state.
#pragma once
#include "parallel/state/stepper.h"

namespace spillway::parallel {

/// Returns true if the whole instruction is put on the queue (CUDA stream) of its lane, and false if the CPU takes part in it.
bool only_queued(const Instruction& i, const Plan& plan, const Stepper& stepper);

/// Returns true if the CPU's part of an instruction comes first, and the rest is on the queue (CUDA stream) of its lane and writes only GPU
/// memory. Applies to instructions in which the CPU takes part. In an optimizer Step, the CPU's part reads results of the instructions
/// before it. In a Fetch or Load only the rest, which is on the queue, needs earlier instructions, because only it uses GPU memory.
bool leaves_on_queue(const Instruction& i, const Plan& plan, const Stepper& stepper);

/// Returns true for a Fetch or Evict between GPU memory and page-locked host memory. The GPU's copy engines carry it out while the GPU
/// computes.
bool copied_by_gpu(const Instruction& i, const Placement& placement);

}  // namespace spillway::parallel
