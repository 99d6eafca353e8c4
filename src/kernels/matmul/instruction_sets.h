// Limits the instruction sets that the kernels choose from (simd.h). The sets differ in the order of sums: a limit gives a machine the bits
// of an older one, and lets a fast machine be measured as if it were a slower one.
#pragma once

namespace spillway::kernels {

enum class InstructionSet { baseline, avx2, best };

/// Applies the limit from now on in all threads. No kernel may be running, unless the limit is already in force. Several threads may call
/// it at once.
void use_at_most(InstructionSet set);

}  // namespace spillway::kernels
