// Which instruction set the optimizer's loops use. All give the same bits; pinning one is for tests, for the scalar oracle and for
// `--isa`. A path the running CPU or the build lacks throws Error(usage). Thread-safe.
#pragma once
#include <span>

namespace spillway::optim {

enum class Isa { scalar, avx2, avx512, best };

/// Which paths this CPU has, best last; scalar is always there.
std::span<const Isa> available_isas();
/// `best` becomes the last of available_isas(); any other comes back unchanged or throws Error(usage).
Isa resolve(Isa isa);
const char* to_string(Isa isa);

}  // namespace spillway::optim
