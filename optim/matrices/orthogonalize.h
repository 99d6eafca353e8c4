// Computes roughly the nearest matrix with orthonormal rows (or columns): five steps of a Newton-Schulz iteration with Muon's quintic
// polynomial (Jordan et al., 2024) bring all singular values near 1. U is the matrix of rows x columns; all arithmetic is in its own type:
//   X = U / max(|U|, 1e-7)                         Frobenius norm
//   A = X X^T,  X = 3.4445 X + (-4.7750 A + 2.0315 A A) X      if rows <= columns
//   A = X^T X,  X = 3.4445 X + X (-4.7750 A + 2.0315 A A)      if rows > columns
// kernels::matmul computes the products, and norm.h defines the order in which the norm is summed. So the result depends on the matrix
// alone, not on the number of threads; but a GPU rounds the products differently from a CPU. A zero matrix stays zero.
#pragma once
#include "device/device.h"
#include "tensor/dtype.h"

namespace spillway::optim {

/// Returns the bytes of working memory that a matrix of f32 or f64 needs on a device of kind `device`. The memory is for two copies
/// of the matrix, each padded to whole tiles, two square matrices of the shorter side, and the workspace of the matrix products.
i64 orthogonalize_bytes(i64 rows, i64 columns, DType dtype, Device::Kind device = Device::Kind::cpu);

/// Returns the number of floating-point operations of the matrix products that orthogonalize a matrix.
double orthogonalize_flops(i64 rows, i64 columns);

/// Orthogonalizes on the CPU, with all threads of the current stream. `memory` has orthogonalize_bytes()
/// bytes and starts at a multiple of 64. The matrix lies at the front of `memory`, padded with zeros to
/// the end of its last tile. Returns the address of the result in `memory`, padded likewise.
std::byte* orthogonalize(std::byte* memory, i64 rows, i64 columns, DType dtype);

/// Orthogonalizes with the matrix products on the GPU of the current stream. `there` is working memory on that GPU: orthogonalize_bytes()
/// bytes at a multiple of 256. `matrix` lies in host memory, padded with zeros to the end of its last tile, and is overwritten by the
/// result before the call returns.
void orthogonalize_on_gpu(std::byte* matrix, i64 rows, i64 columns, DType dtype, std::byte* there);

}  // namespace spillway::optim
