// What nvcc made of the kernels: registers, memory and instructions, as cuobjdump tells them. Used by device_code_cuda_test.cc.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace spillway::test {

struct Instruction {
  long at;  // address within the kernel
  std::string name, rest;
};

struct KernelCode {
  std::string architecture;  // sm_80
  std::string name;          // without namespaces and parameters: attend_tile<BFloat16, 64, 0>
  int registers = 0, stack_bytes = 0, local_bytes = 0;
  std::vector<Instruction> instructions;
};

/// The parts of a kernel that a jump backwards closes.
struct LoopCode {
  std::vector<Instruction> instructions;
  /// Instructions of this name, whatever follows the first point: "HMMA".
  int count(const std::string& name) const;
};

/// From the output of `cuobjdump --dump-resource-usage` and of `cuobjdump -sass`.
std::vector<KernelCode> kernels_from(const std::string& resources, const std::string& sass);
/// The smallest loop that has one of these instructions; without instructions where there is none.
LoopCode smallest_loop_with(const KernelCode& kernel, const std::string& name);

/// Where cuobjdump is not found, empty.
std::string cuobjdump_version();
/// Of a library, an object or a cubin; by cuobjdump, which takes a second for some MiB.
std::vector<KernelCode> kernels_in(const std::string& file);

}  // namespace spillway::test
