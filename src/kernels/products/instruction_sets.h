// Limits the instruction sets that the kernels choose from (simd.h). Instruction sets differ in the order of sums, so a limit makes a
// machine compute bitwise what an older machine computes. A limit also lets a fast machine be measured as if it were a slower one.
#pragma once

namespace spillway::kernels {

enum class InstructionSet { baseline, avx2, best };

/// Applies the limit from now on, in all threads. No kernel may be running, except
/// if this limit already applies. Several threads may call use_at_most() at once.
void use_at_most(InstructionSet set);

}  // namespace spillway::kernels
