#include "kernels/products/instruction_sets.h"

#include <hwy/targets.h>

#include <mutex>

#include "base/types.h"

namespace spillway::kernels {

void use_at_most(InstructionSet set) {
  static std::mutex mutex;
  static InstructionSet in_force = InstructionSet::best;
  const std::lock_guard lock(mutex);
  if (set == in_force) return;  // nothing changes; it must not, because another rank of this process may be computing
  constexpr auto kAvx512 = HWY_AVX3 | HWY_AVX3_DL;
  hwy::DisableTargets(set == InstructionSet::best ? 0 : set == InstructionSet::avx2 ? kAvx512 : kAvx512 | HWY_AVX2);
  const i64 left = hwy::SupportedTargets();  // this call also makes Highway forget its earlier choice
  hwy::GetChosenTarget().Update(left);
  in_force = set;
}

}  // namespace spillway::kernels
