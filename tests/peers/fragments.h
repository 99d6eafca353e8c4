// What each lane of a warp gets from the kernels' ways to tensor cores (kernels/mma_cuda.h) as the emulator runs them. Between
// fragments_emulated.cc, which sees the emulator's CUDA headers, and fragments_cute.cc, which sees NVIDIA's.
#pragma once

namespace spillway::peers {

constexpr int kLanes = 32;

/// Lane l's fragments: of a[16, 16] the registers 0..3, of b[16, 8] the registers 4, 5.
using Operands = unsigned[kLanes][6];
using Products = float[kLanes][4];
void multiply(bool f16, const Operands& operands, Products& products);

constexpr int kSharedBytes = 4096;
/// Lane l gives the address `at[l]` of a row of 16 bytes.
using Rows = unsigned[kLanes];
using Loaded = unsigned[kLanes][4];
void load(bool transposed, const Rows& at, const unsigned char (&shared)[kSharedBytes], Loaded& loaded);

}  // namespace spillway::peers
