// Selects the instruction set of the optimizer's loops. All instruction sets give bitwise equal results; a fixed choice serves tests,
// comparison with the scalar reference, and `--isa`. An instruction set that the CPU or the build lacks throws Error(usage). Thread-safe.
#pragma once
#include <span>

namespace spillway::optim {

enum class Isa { scalar, avx2, avx512, best };

/// Returns the instruction sets that this CPU and build support, the best last; scalar is always among them.
std::span<const Isa> available_isas();
/// Returns the last of available_isas() for Isa::best, and any other value unchanged. Throws Error(usage) if `isa` is not among
/// available_isas().
Isa resolve(Isa isa);
const char* to_string(Isa isa);

}  // namespace spillway::optim
