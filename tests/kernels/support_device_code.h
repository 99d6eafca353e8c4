// Reads the machine code that nvcc made of the kernels, as cuobjdump reports
// it: registers, memory and instructions. device_code_cuda_test.cc uses it.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace spillway::test {

struct Instruction {
  long at;  // offset of the instruction in bytes from the start of the kernel
  std::string name, rest;
};

struct KernelCode {
  std::string architecture;  // name of the GPU architecture, such as sm_80
  std::string name;          // name of the kernel without namespaces and parameters, such as attend_tile<BFloat16, 64, 0>
  int registers = 0, stack_bytes = 0, local_bytes = 0;
  std::vector<Instruction> instructions;
};

/// Holds the instructions of a loop: the part of a kernel that a backward jump closes.
struct LoopCode {
  std::vector<Instruction> instructions;
  /// Counts the loop's instructions whose name up to the first point is `name`, such as "HMMA".
  int count(const std::string& name) const;
};

/// Parses the output of `cuobjdump --dump-resource-usage` and of `cuobjdump -sass`.
std::vector<KernelCode> kernels_from(const std::string& resources, const std::string& sass);
/// Returns the smallest loop of the kernel that contains instruction `name`, or a loop without instructions if there is none.
LoopCode smallest_loop_with(const KernelCode& kernel, const std::string& name);

/// Returns the version of cuobjdump, or "" if cuobjdump is not found.
std::string cuobjdump_version();
/// Returns the kernels in a library, an object file or a cubin. It runs cuobjdump, which takes a second for some MiB.
std::vector<KernelCode> kernels_in(const std::string& file);

}  // namespace spillway::test
