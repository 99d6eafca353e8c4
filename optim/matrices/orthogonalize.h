// The nearest matrix with orthonormal rows (or columns), roughly: five steps of a Newton-Schulz iteration with Muon's quintic (Jordan et
// al., 2024), which bring all singular values near 1. From U = rows x columns, in its own type throughout:
//   X = U / max(|U|, 1e-7)                         Frobenius norm
//   A = X X^T,  X = 3.4445 X + (-4.7750 A + 2.0315 A A) X;  of more rows than columns on the other side: A = X^T X, X (... A A)
// Products are kernels::matmul's, the norm's sum is norm.h's: the bits depend on the matrix alone, not on the number of threads; those of a
// GPU's products are its own. A zero matrix stays zero.
#pragma once
#include "device/device.h"
#include "tensor/dtype.h"

namespace spillway::optim {

/// Of f32 or f64, in memory of such a device: two of the matrix, each in whole tiles, two squares of the shorter side, and what products
/// work with.
i64 orthogonalize_bytes(i64 rows, i64 columns, DType dtype, Device::Kind device = Device::Kind::cpu);

/// Of its products.
double orthogonalize_flops(i64 rows, i64 columns);

/// By all threads of the stream in force, a CPU's. `memory`: of that many bytes, at a multiple of 64; the matrix lies in front, zeros up to
/// the end of its last tile. Returns where the result lies in it, with zeros likewise.
std::byte* orthogonalize(std::byte* memory, i64 rows, i64 columns, DType dtype);

/// Its products by the GPU of the stream in force, in `there`: that many bytes of its memory, at a multiple of 256. `matrix` lies in host
/// memory, zeros up to the end of its last tile, and becomes the result, done on return.
void orthogonalize_on_gpu(std::byte* matrix, i64 rows, i64 columns, DType dtype, std::byte* there);

}  // namespace spillway::optim
