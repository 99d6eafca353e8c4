#include "kernels/sequence/selective_scan.h"

#include "kernels/dispatch.h"
#include "kernels/has_cuda.h"
#include "kernels/sequence/selective_scan_chunks_cpu.h"
#include "tensor/flop_count.h"

namespace spillway::kernels {
namespace scan {
namespace {

// Returns the elements of a lane's workspace: the packed c, b by rows and b by columns, the scores c b^T, a packed left and right operand,
// scaled rows, sums, and the states of the heads.
i64 forward_elems(const ScanShape& s) {
  const i64 chunk = chunk_of(s), left = packed(chunk, chunk), right = std::max(packed(s.P, s.N), packed(s.P, chunk));
  return 2 * packed(chunk, s.N) + packed(s.N, chunk) + 2 * round_up(chunk * chunk, 16) + left + right + 2 * round_up(chunk * s.P, 16) +
         kScanHeads * state_elems(s);
}

template <class S>
struct Forward : Scan<S> {
  using T = Wide<S>;
  using Scan<S>::shape, Scan<S>::in;
  const Tensor &initial, &y, &last;

  struct Buffers {
    T *c_rows, *b_rows, *b_across, *scores, *decayed, *left, *right, *scaled, *sums, *states;
  };

  void item(const ScanBlock& block, T* memory) const {
    Pieces<T> pieces{memory};
    const i64 chunk_size = chunk_of(shape);
    Buffers to{};
    to.c_rows = pieces.take(packed(chunk_size, shape.N)), to.b_rows = pieces.take(packed(chunk_size, shape.N));
    to.b_across = pieces.take(packed(shape.N, chunk_size));
    to.scores = pieces.take(chunk_size * chunk_size), to.decayed = pieces.take(chunk_size * chunk_size);
    to.left = pieces.take(packed(chunk_size, chunk_size));
    to.right = pieces.take(std::max(packed(shape.P, shape.N), packed(shape.P, chunk_size)));
    to.scaled = pieces.take(chunk_size * shape.P), to.sums = pieces.take(chunk_size * shape.P);
    to.states = pieces.take(kScanHeads * state_elems(shape));
    for (i64 h = block.first; initial.defined() && h < block.last; ++h)
      std::copy_n(state_of(initial, block, h), shape.N * shape.P, held(to, block, h));
    const i32* positions = this->positions(block.b);
    for (i64 t = 0; t < shape.T;) {
      const ScanChunk chunk = scan_chunk(positions, t, shape.T, initial.defined(), last.defined());
      share(block, chunk, to);
      for (i64 h = block.first; h < block.last; ++h) head(block, h, chunk, to);
      t += chunk.rows;
    }
    for (i64 h = block.first; last.defined() && h < block.last; ++h)
      std::copy_n(held(to, block, h), shape.N * shape.P, state_of(last, block, h));
  }

  T* state_of(const Tensor& states, const ScanBlock& block, i64 h) const {
    return states.template data<T>() + (block.b * shape.H + h) * shape.N * shape.P;
  }
  T* held(const Buffers& from, const ScanBlock& block, i64 h) const { return from.states + (h - block.first) * state_elems(shape); }

  // Packs b and c of a chunk and computes scores = c b^T, which all heads of the group use.
  void share(const ScanBlock& block, const ScanChunk& chunk, const Buffers& to) const {
    const Rows<S> b(in.b_BTY, block.b, block.group, shape.N), c(in.c_BTY, block.b, block.group, shape.N);
    gemm::pack(Side::a, c.by_row(chunk.begin), chunk.rows, shape.N, to.c_rows);
    gemm::pack(Side::b, b.by_row(chunk.begin), chunk.rows, shape.N, to.b_rows);
    multiply(chunk.rows, chunk.rows, shape.N, to.c_rows, to.b_rows, to.scores, chunk.rows);
    if (chunk.continued) gemm::pack(Side::a, b.by_column(chunk.begin), shape.N, chunk.rows, to.b_across);
  }

  // Computes y = exp(decay) (c state) + d x + (scores, decayed) (dt x), and the next state.
  void head(const ScanBlock& block, i64 h, const ScanChunk& chunk, const Buffers& to) const {
    const Rows<S> x(in.x_BTX, block.b, h, shape.P), result(y, block.b, h, shape.P);
    const Steps<T> s = this->steps(block, h, chunk);
    const i64 rows = chunk.rows, width = shape.P;
    T* state = held(to, block, h);
    for (i64 t = 0; t < rows; ++t) {
      scan::decayed(to.scores + t * rows, s.decay, s.dt, t + 1, s.decay[t], to.decayed + t * rows);
      std::fill(to.decayed + t * rows + t + 1, to.decayed + (t + 1) * rows, T(0));
    }
    if (chunk.continues) {
      gemm::pack(Side::b, Operand<T>{state, 1, width}, width, shape.N, to.right);
      multiply(rows, width, shape.N, to.c_rows, to.right, to.sums, width);
    }
    const T d = widen(in.d_H.template data<S>()[h]);
    for (i64 t = 0; t < rows; ++t) {
      const S* row = x.row(chunk.begin + t);
      T* sums = to.sums + t * width;
      chunk.continues ? scan::weighted_sum(sums, s.grown[t], row, d, width, sums) : scan::times(row, width, d, sums);
    }
    gemm::pack(Side::a, Operand<T>{to.decayed, rows, 1}, rows, rows, to.left);
    gemm::pack(Side::b, x.by_column(chunk.begin), width, rows, to.right);
    gemm::multiply<T, S>(rows, width, rows, {to.left, rows}, {to.right, rows}, {result.row(chunk.begin), result.stride, to.sums, width});
    if (chunk.continued) this->advance(s, chunk, x, to.b_across, chunk.continues ? state : nullptr, state, to.scaled, to.right);
  }
};

void check_state(const ScanShape& s, const Tensor& state, DType dtype) {
  require(!state.defined() || (state.shape() == Shape{s.B, s.H, s.N, s.P} && state.dtype() == wide_dtype(dtype) && state.is_contiguous()),
          "[selective_scan] expected contiguous states [B, H, N, P] in the wide dtype of x");
}

}  // namespace
}  // namespace scan

bool is_scan_view(const Tensor& t, const Shape& shape, DType dtype) {
  return t.shape() == shape && t.dtype() == dtype && (t.size(t.rank() - 1) == 1 || t.stride(t.rank() - 1) == 1);
}

ScanShape scan_shape(const ScanTensors& in, const ScanOptions& options) {
  const i64 heads = in.d_H.elems(), groups = options.groups;
  require(heads > 0 && groups > 0 && heads % groups == 0 && in.x_BTX.rank() == 3 && in.x_BTX.size(2) % heads == 0 && in.b_BTY.rank() == 3 &&
              in.b_BTY.size(2) % groups == 0 && in.x_BTX.elems() > 0 && in.b_BTY.elems() > 0,
          "[selective_scan] expected x [B, T, H * P], b [B, T, G * N] and d [H], with G dividing H");
  const ScanShape s{in.x_BTX.size(0), in.x_BTX.size(1), heads, in.x_BTX.size(2) / heads, groups, in.b_BTY.size(2) / groups};
  const DType dtype = in.x_BTX.dtype();
  const Shape of_groups{s.B, s.T, s.G * s.N};
  const auto parameter = [&](const Tensor& t) { return t.shape() == Shape{s.H} && t.dtype() == dtype && t.is_contiguous(); };
  require(is_scan_view(in.x_BTX, in.x_BTX.shape(), dtype) && is_scan_view(in.b_BTY, of_groups, dtype) &&
              is_scan_view(in.c_BTY, of_groups, dtype) && is_scan_view(in.dt_BTH, Shape{s.B, s.T, s.H}, dtype) && parameter(in.a_log_H) &&
              parameter(in.dt_bias_H) && parameter(in.d_H),
          "[selective_scan] expected x [B, T, H * P], dt [B, T, H], b and c [B, T, G * N] and a_log, dt_bias and d [H] of one dtype, with "
          "contiguous last axes");
  return s;
}

void check_scan_options(const ScanShape& s, const ScanOptions& o) {
  require(o.smallest_dt >= 0 && o.smallest_dt <= o.largest_dt,
          "[selective_scan] expected limits of dt of at least 0, the smaller one first");
  const Tensor& positions = o.positions_BT;
  require(!positions.defined() || (positions.shape() == Shape{s.B, s.T} && positions.dtype() == DType::int32 && positions.is_contiguous()),
          "[selective_scan] expected contiguous int32 positions [B, T]: each element's position within its document");
}

i64 selective_scan_workspace_bytes(const ScanShape& shape, DType dtype) {
  if constexpr (kHasCuda) {
    if (Stream::current().device.works_as_cuda()) return cuda::selective_scan_workspace_bytes(shape, dtype);
  }
  return scan::lanes_of(shape) * scan::forward_elems(shape) * size_of(wide_dtype(dtype));
}

void selective_scan(const ScanTensors& in, const ScanOptions& options, const Tensor& initial, const Tensor& y, const Tensor& final,
                    const Tensor& workspace) {
  const ScanShape shape = scan_shape(in, options);
  check_scan_options(shape, options);
  scan::check_state(shape, initial, in.x_BTX.dtype());
  scan::check_state(shape, final, in.x_BTX.dtype());
  require(is_scan_view(y, in.x_BTX.shape(), in.x_BTX.dtype()), "[selective_scan] expected y of the shape and dtype of x");
  require(workspace.bytes() >= selective_scan_workspace_bytes(shape, y.dtype()),
          "[selective_scan] expected a workspace of at least selective_scan_workspace_bytes()");
  count_flops(scan_flops(shape));
  if (y.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(y, selective_scan(in, options, initial, y, final, workspace));
  for_dtype("selective_scan", y.dtype(), [&]<class S>(S) {
    scan::run_blocks(shape, scan::forward_elems(shape), reinterpret_cast<Wide<S>*>(workspace.raw()),
                     scan::Forward<S>{{shape, in, options}, initial, y, final});
  });
}

}  // namespace spillway::kernels
