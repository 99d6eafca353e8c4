// Which of the instruction sets that the kernels are compiled for are chosen from (simd.h). They differ in the order of sums: pinning one
// gives a machine the bits of another, and lets a faster one be measured as a slower.
#pragma once

namespace spillway::kernels {

enum class InstructionSet { baseline, avx2, best };

/// From now on, in all threads; not while kernels run, unless it is what is in force already. Threads may call it at once.
void use_at_most(InstructionSet set);

}  // namespace spillway::kernels
