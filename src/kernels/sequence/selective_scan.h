// The state-space recurrence of Mamba 2 (Dao and Gu, arXiv:2405.21060) for f32, f64, bf16 and f16; bf16 and f16 are computed in f32.
// Legend: B = batch size, T = positions, H = heads, P = elements of a head, G = groups, N = elements of a state per element of a head. With
// dt = clamp(softplus(dt_raw + dt_bias)) and A = -exp(a_log), a head with the state S[N, P] computes at each position
//   S = exp(dt A) S + dt b[N] x[P]^T,   y[P] = S^T c + d x.
// Head h uses b and c of group h / (H / G). S is zero before the first position of each document. The recurrence is computed in chunks of
// at most kScanChunk positions, which depend on the positions within a document alone (document_chunks.h); on a CPU the results of a
// document are therefore bitwise the same whatever lies beside it. The gradient keeps nothing of the forward pass: it computes the states
// at the beginnings of chunks again, in its workspace, because all states of a layer take more memory than the layer's other activations.
#pragma once
#include <limits>

#include "tensor/tensor.h"

namespace spillway::kernels {

inline constexpr i64 kScanChunk = 64;

/// The extents of a scan, named as in the legend at the top.
struct ScanShape {
  i64 B, T, H, P, G, N;
};

/// The inputs of a scan, or their gradients: x[B, T, H * P], dt_raw[B, T, H], b and c[B, T, G * N] are views of any strides whose last axis
/// is contiguous; the parameters [H] are contiguous. All inputs have one dtype.
struct ScanTensors {
  Tensor x_BTX, dt_BTH, b_BTY, c_BTY, a_log_H, dt_bias_H, d_H;
};

struct ScanOptions {
  i64 groups = 1;                                                                // G
  double smallest_dt = 0, largest_dt = std::numeric_limits<double>::infinity();  // the limits to which dt is clamped
  Tensor positions_BT;  // int32: each element's position in its document, from 0; undefined if each row is one document
};

/// Returns the bytes of workspace that selective_scan() or its gradient needs on the current stream's device, or on the GPU that a meta
/// device imitates.
i64 selective_scan_workspace_bytes(const ScanShape& shape, DType dtype);
i64 selective_scan_gradient_workspace_bytes(const ScanShape& shape, DType dtype);

/// Computes y[B, T, H * P]. initial_BHNP is the state before the first position of each row, in wide_dtype of x; it is zero if undefined.
/// final_BHNP, if it is defined, receives the state after the last position, and may be initial_BHNP.
void selective_scan(const ScanTensors& in, const ScanOptions& options, const Tensor& initial_BHNP, const Tensor& y_BTX,
                    const Tensor& final_BHNP, const Tensor& workspace);

/// Overwrites the gradients of selective_scan() without an initial and a final state. The gradients of x, dt, b and c are views like the
/// inputs, of their dtype; those of the parameters are contiguous, in wide_dtype. No gradient of d is computed if its tensor is undefined,
/// and likewise for a_log and dt_bias. The gradient of dt passes only strictly between the limits.
void selective_scan_gradient(const ScanTensors& in, const ScanOptions& options, const Tensor& dy_BTX, const ScanTensors& gradients,
                             const Tensor& workspace);

namespace cuda {
decltype(kernels::selective_scan_workspace_bytes) selective_scan_workspace_bytes;
decltype(kernels::selective_scan_gradient_workspace_bytes) selective_scan_gradient_workspace_bytes;
decltype(kernels::selective_scan) selective_scan;
decltype(kernels::selective_scan_gradient) selective_scan_gradient;
}  // namespace cuda

}  // namespace spillway::kernels
