// Holds what the CPU and the GPU share of selective_scan.h: the extents of a scan and the arithmetic of a time step.
#pragma once
#include <algorithm>
#include <cmath>

#include "kernels/sequence/document_chunks.h"
#include "kernels/sequence/selective_scan.h"

namespace spillway::kernels {

/// Returns the extents of a scan. Throws Error(bug) if the tensors of `in` do not fit each other and options.groups.
ScanShape scan_shape(const ScanTensors& in, const ScanOptions& options);
/// Throws Error(bug) if the options are invalid for a scan of this shape.
void check_scan_options(const ScanShape& shape, const ScanOptions& options);
/// Returns whether `t` is a view of this shape and dtype whose last axis is contiguous.
bool is_scan_view(const Tensor& t, const Shape& shape, DType dtype);

// One task of the CPU, or thread block of a GPU, computes kScanHeads heads of one group and one row of the batch, which share the products
// of b and c. The gradients of b and c are first summed over the heads of such a block, and then over the blocks of the group in order.
inline constexpr i64 kScanHeads = 4;
constexpr i64 scan_blocks_of_group(const ScanShape& s) { return ceil_div(s.H / s.G, kScanHeads); }
constexpr i64 scan_blocks_of_row(const ScanShape& s) { return s.G * scan_blocks_of_group(s); }

/// Heads [first, last) of a group, in row b of the batch. `index` counts the blocks of a row.
struct ScanBlock {
  i64 b, group, first, last, index;
};
constexpr ScanBlock scan_block(const ScanShape& s, i64 item) {
  const i64 index = item % scan_blocks_of_row(s), group = index / scan_blocks_of_group(s), heads = s.H / s.G;
  const i64 first = group * heads + index % scan_blocks_of_group(s) * kScanHeads, end = (group + 1) * heads;
  return {item / scan_blocks_of_row(s), group, first, first + kScanHeads < end ? first + kScanHeads : end, index};
}

/// Returns the operations of the products of a scan and of its gradient, without taking documents into account.
inline double scan_flops(const ScanShape& s) {
  const i64 chunk = std::min(s.T, kScanChunk);
  return 2.0 * static_cast<double>(s.B * s.T) * static_cast<double>(s.H * s.P * (2 * s.N + chunk) + s.G * s.N * chunk);
}
inline double scan_gradient_flops(const ScanShape& s) {
  const i64 chunk = std::min(s.T, kScanChunk);
  return 2.0 * static_cast<double>(s.B * s.T) * static_cast<double>(s.H * s.P * (5 * s.N + 2 * chunk) + 3 * s.G * s.N * chunk);
}

/// The elements [begin, begin + rows) of a row of the batch.
struct ScanChunk {
  i64 begin, rows;
  bool continues;  // the state before the chunk is not zero: it is that of the same document, or an initial state
  bool continued;  // the state after the chunk is needed
};
/// Returns the chunk that begins at element t of a row of `length` elements. `given` says whether the row has an initial state, `wanted`
/// whether its last state is needed. A row that begins with position 0 begins a document, so that its initial state does not count.
constexpr ScanChunk scan_chunk(const i32* positions_T, i64 t, i64 length, bool given = false, bool wanted = false) {
  const i64 end = chunk_end(positions_T, t, length, kScanChunk);
  return {t, end - t, t == 0 ? given && !(positions_T && positions_T[0] == 0) : !begins_document(positions_T, t),
          end == length ? wanted : !begins_document(positions_T, end)};
}

/// The time step of one position, and its derivative by dt_raw.
template <class T>
struct TimeStep {
  T dt, slope;
};
/// Computes clamp(softplus(raw)), where softplus(x) is x above 20, as in PyTorch.
template <class T>
constexpr TimeStep<T> time_step(T raw, T smallest, T largest) {
  const T soft = raw > 20 ? raw : std::log1p(std::exp(raw));
  if (soft < smallest) return {smallest, T(0)};
  if (soft > largest) return {largest, T(0)};
  const bool within = smallest < soft && soft < largest;
  return {soft, within ? raw > 20 ? T(1) : 1 / (1 + std::exp(-raw)) : T(0)};
}

}  // namespace spillway::kernels
