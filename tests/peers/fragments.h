// Declares what each lane of a warp gets from the kernels' tensor core instructions (kernels/mma_cuda.h) as the emulator runs
// them. fragments_emulated.cc, which includes the emulator's CUDA headers, defines it for fragments_cute.cc, which includes NVIDIA's.
#pragma once

namespace spillway::peers {

constexpr int kLanes = 32;

/// Holds the operands' fragments of each lane: registers 0 to 3 hold its part of a[16, 16], registers 4 and 5 its part of b[16, 8].
using Operands = unsigned[kLanes][6];
using Products = float[kLanes][4];
void multiply(bool f16, const Operands& operands, Products& products);

constexpr int kSharedBytes = 4096;
/// Holds the addresses for ldmatrix: lane l gives the address `at[l]` of a row of 16 bytes.
using Rows = unsigned[kLanes];
using Loaded = unsigned[kLanes][4];
void load(bool transposed, const Rows& at, const unsigned char (&shared)[kSharedBytes], Loaded& loaded);

}  // namespace spillway::peers
