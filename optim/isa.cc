#include "optim/isa.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"

namespace spillway::optim {
namespace {

std::vector<Isa> detect() {
  std::vector<Isa> isas{Isa::scalar};
#if defined(__x86_64__)
  // __builtin_cpu_supports also checks that the operating system saves the registers, not only CPUID.
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) isas.push_back(Isa::avx2);
  if (__builtin_cpu_supports("avx512f")) isas.push_back(Isa::avx512);
#endif
  return isas;
}

}  // namespace

std::span<const Isa> available_isas() {
  static const std::vector<Isa> isas = detect();
  return isas;
}

Isa resolve(Isa isa) {
  const auto available = available_isas();
  if (isa == Isa::best) return available.back();
  if (std::find(available.begin(), available.end(), isa) != available.end()) return isa;
  std::string known;
  for (Isa one : available) known += std::string(known.empty() ? "" : ", ") + to_string(one);
  throw Error(ErrorCode::usage, std::string("[isa] expected an instruction set that this machine has (") + known + "), got " +
                                    to_string(isa) + ": choose one of these or best");
}

const char* to_string(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return "scalar";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::best:
      break;
  }
  return "best";
}

}  // namespace spillway::optim
