#include "kernels/matmul/instruction_sets.h"

#include <hwy/targets.h>

#include "base/types.h"

namespace spillway::kernels {

void use_at_most(InstructionSet set) {
  constexpr auto kAvx512 = HWY_AVX3 | HWY_AVX3_DL;
  hwy::DisableTargets(set == InstructionSet::best ? 0 : set == InstructionSet::avx2 ? kAvx512 : kAvx512 | HWY_AVX2);
  const i64 left = hwy::SupportedTargets();  // chooses of all of them on its way
  hwy::GetChosenTarget().Update(left);
}

}  // namespace spillway::kernels
