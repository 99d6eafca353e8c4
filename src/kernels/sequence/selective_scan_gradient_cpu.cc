#include "kernels/dispatch.h"
#include "kernels/has_cuda.h"
#include "kernels/sequence/attention_rows.h"
#include "kernels/sequence/selective_scan.h"
#include "kernels/sequence/selective_scan_chunks_cpu.h"
#include "tensor/flop_count.h"

namespace spillway::kernels {
namespace scan {
namespace {

// The sizes, in elements, of the pieces of a lane's workspace.
struct Sizes {
  i64 of_group, across, left, right, square, wide, narrow, states;
  explicit Sizes(const ScanShape& s) {
    const i64 chunk = chunk_of(s);
    of_group = packed(chunk, s.N), across = packed(s.N, chunk);
    left = std::max(packed(chunk, s.P), packed(chunk, chunk));
    right = std::max({packed(s.P, s.N), packed(s.P, chunk), packed(chunk, s.P), packed(s.N, s.P), packed(s.N, chunk), packed(chunk, s.N)});
    square = round_up(chunk * chunk, 16), wide = round_up(chunk * s.N, 16), narrow = round_up(chunk * s.P, 16);
    states = kept_states(s.T, kScanChunk) * kScanHeads * state_elems(s);
  }
  i64 lane_elems(const ScanShape& s) const {
    return of_group + 2 * across + left + right + 4 * square + 3 * wide + 2 * narrow + states + kScanHeads * state_elems(s);
  }
};

// Returns the elements in which the gradients of b or c are summed over the heads of each block.
i64 partial_elems(const ScanShape& s) { return round_up(s.B * scan_blocks_of_row(s) * s.T * s.N, 16); }

// The parts of the gradients of a head's parameters that one row of the batch contributes.
struct ParameterSums {
  double a_log = 0, dt_bias = 0, d = 0;
};

template <class S>
struct Gradient : Scan<S> {
  using T = Wide<S>;
  using Scan<S>::shape, Scan<S>::in;
  const Tensor& dy;
  const ScanTensors& to;
  T *db_partial, *dc_partial;  // [B, blocks of a row, T, N]
  ParameterSums* sums;         // [B, H]

  struct Buffers {
    T *b_rows, *b_across, *c_across, *left, *right, *scores, *dscores, *w, *weights, *b_wide, *c_wide, *products, *du, *scaled, *states,
        *dstates, *db, *dc;
  };

  void item(const ScanBlock& block, T* memory) const {
    const Sizes sizes(shape);
    Pieces<T> pieces{memory};
    Buffers at{};
    at.b_rows = pieces.take(sizes.of_group), at.b_across = pieces.take(sizes.across), at.c_across = pieces.take(sizes.across);
    at.left = pieces.take(sizes.left), at.right = pieces.take(sizes.right);
    for (T** square : {&at.scores, &at.dscores, &at.w, &at.weights}) *square = pieces.take(sizes.square);
    for (T** wide : {&at.b_wide, &at.c_wide, &at.products}) *wide = pieces.take(sizes.wide);
    at.du = pieces.take(sizes.narrow), at.scaled = pieces.take(sizes.narrow);
    at.states = pieces.take(sizes.states), at.dstates = pieces.take(kScanHeads * state_elems(shape));
    const i32* positions = this->positions(block.b);
    keep_states(block, positions, at);
    ParameterSums* row_sums = sums + block.b * shape.H;
    for (i64 h = block.first; h < block.last; ++h) row_sums[h] = {};
    for (i64 end = shape.T; end > 0;) {
      const ScanChunk chunk = scan_chunk(positions, previous_chunk(positions, end, kScanChunk), shape.T);
      share(block, chunk, at);
      for (i64 h = block.first; h < block.last; ++h) head(block, h, chunk, at, row_sums[h]);
      finish_group(block, chunk, at);
      end = chunk.begin;
    }
  }

  T* state(const Buffers& at, const ScanBlock& block, i64 h, i64 t) const {
    return at.states + (kept_state(t, kScanChunk) * kScanHeads + h - block.first) * state_elems(shape);
  }

  // Computes the states at the beginnings of the chunks that continue a document.
  void keep_states(const ScanBlock& block, const i32* positions, const Buffers& at) const {
    const Rows<S> b(in.b_BTY, block.b, block.group, shape.N);
    for (i64 t = 0; t < shape.T;) {
      const ScanChunk chunk = scan_chunk(positions, t, shape.T);
      const i64 end = t + chunk.rows;
      if (chunk.continued) gemm::pack(Side::a, b.by_column(t), shape.N, chunk.rows, at.b_across);
      for (i64 h = block.first; chunk.continued && h < block.last; ++h) {
        this->advance(this->steps(block, h, chunk), chunk, Rows<S>(in.x_BTX, block.b, h, shape.P), at.b_across,
                      chunk.continues ? state(at, block, h, t) : nullptr, state(at, block, h, end), at.scaled, at.right);
      }
      t = end;
    }
  }

  // Computes what all heads of the block use of b and c, and clears the sums over the heads.
  void share(const ScanBlock& block, const ScanChunk& chunk, Buffers& at) const {
    const Rows<S> b(in.b_BTY, block.b, block.group, shape.N), c(in.c_BTY, block.b, block.group, shape.N);
    const i64 rows = chunk.rows, first = ((block.b * scan_blocks_of_row(shape) + block.index) * shape.T + chunk.begin) * shape.N;
    at.db = db_partial + first, at.dc = dc_partial + first;
    std::fill_n(at.db, rows * shape.N, T(0));
    std::fill_n(at.dc, rows * shape.N, T(0));
    std::fill_n(at.dscores, rows * rows, T(0));
    for (i64 t = 0; t < rows; ++t) {
      scan::times(b.row(chunk.begin + t), shape.N, T(1), at.b_wide + t * shape.N);
      scan::times(c.row(chunk.begin + t), shape.N, T(1), at.c_wide + t * shape.N);
    }
    gemm::pack(Side::a, Operand<T>{at.c_wide, shape.N, 1}, rows, shape.N, at.b_rows);
    gemm::pack(Side::b, Operand<T>{at.b_wide, shape.N, 1}, rows, shape.N, at.right);
    multiply(rows, rows, shape.N, at.b_rows, at.right, at.scores, rows);
    if (chunk.continued) gemm::pack(Side::a, Operand<T>{at.b_wide, shape.N, 1}, rows, shape.N, at.b_rows);
    if (chunk.continues) gemm::pack(Side::a, Operand<T>{at.c_wide, 1, shape.N}, shape.N, rows, at.c_across);
  }

  // Computes the gradients of one head and adds its parts of those of b, c and the scores. With u = dt x: y = grown (c state) + decayed u +
  // d x, and dlog collects the gradients of dt A. It is summed from terms that reach across each position, so that terms of one position
  // need not cancel.
  void head(const ScanBlock& block, i64 h, const ScanChunk& chunk, const Buffers& at, ParameterSums& sum) const {
    const Rows<S> x(in.x_BTX, block.b, h, shape.P), dout(dy, block.b, h, shape.P);
    const Steps<T> s = this->steps(block, h, chunk);
    T dlog[kScanChunk];
    gemm::pack(Side::a, dout.by_row(chunk.begin), chunk.rows, shape.P, at.left);
    within_chunk(x, s, chunk, at, dlog);
    if (chunk.continues) from_state(s, state(at, block, h, chunk.begin), chunk, at, dlog);
    T* dstate = at.dstates + (h - block.first) * state_elems(shape);
    if (chunk.continued) {
      to_state(x, s, dstate, chunk, at, dlog);
      if (chunk.continues) {
        const T whole = s.total * rows::dot<T>(state(at, block, h, chunk.begin), dstate, shape.N * shape.P);
        for (i64 t = 0; t < chunk.rows; ++t) dlog[t] += whole;
      }
    }
    finish_head(block, h, x, dout, s, chunk, at, dlog, sum);
    if (!chunk.continues) return;
    for (i64 t = 0; t < chunk.rows; ++t) scan::times(dout.row(chunk.begin + t), shape.P, s.grown[t], at.scaled + t * shape.P);
    gemm::pack(Side::b, Operand<T>{at.scaled, 1, shape.P}, shape.P, chunk.rows, at.right);
    if (chunk.continued) scan::times(dstate, shape.N * shape.P, s.total, dstate);
    multiply(shape.N, shape.P, chunk.rows, at.c_across, at.right, dstate, shape.P, chunk.continued);
  }

  // Computes `weights`, the factors of dt x in y, adds to the gradients of the scores, and begins dlog. at.left holds dy.
  void within_chunk(const Rows<S>& x, const Steps<T>& s, const ScanChunk& chunk, const Buffers& at, T* dlog) const {
    const i64 rows = chunk.rows;
    T across[kScanChunk] = {};  // for each position, the sum over later ones of the gradients of their exponents
    gemm::pack(Side::b, x.by_row(chunk.begin), rows, shape.P, at.right);
    multiply(rows, rows, shape.P, at.left, at.right, at.w, rows);
    for (i64 t = rows - 1; t >= 0; --t) {
      const i64 at_row = t * rows;
      scan::decayed_gradient(at.scores + at_row, at.w + at_row, s.decay, s.dt, t + 1, s.decay[t], at.weights + at_row, at.dscores + at_row,
                             across);
      std::fill(at.weights + at_row + t + 1, at.weights + at_row + rows, T(0));
      dlog[t] = scan::sum(across, t);
    }
  }

  // Adds what reaches y from the state before the chunk. at.left holds dy.
  void from_state(const Steps<T>& s, const T* state, const ScanChunk& chunk, const Buffers& at, T* dlog) const {
    const i64 n = shape.N;
    gemm::pack(Side::b, Operand<T>{state, shape.P, 1}, n, shape.P, at.right);
    multiply(chunk.rows, n, shape.P, at.left, at.right, at.products, n);
    T later = 0;
    for (i64 t = chunk.rows - 1; t >= 0; --t) {
      later += s.grown[t] * rows::dot<T>(at.products + t * n, at.c_wide + t * n, n);
      dlog[t] += later;
      scan::weighted_sum<T>(at.dc + t * n, T(1), at.products + t * n, s.grown[t], n, at.dc + t * n);
    }
  }

  // Adds what reaches the state after the chunk, and begins at.du, the gradient of dt x.
  void to_state(const Rows<S>& x, const Steps<T>& s, const T* dstate, const ScanChunk& chunk, const Buffers& at, T* dlog) const {
    const i64 n = shape.N, width = shape.P;
    gemm::pack(Side::a, x.by_row(chunk.begin), chunk.rows, width, at.left);
    gemm::pack(Side::b, Operand<T>{dstate, width, 1}, n, width, at.right);
    multiply(chunk.rows, n, width, at.left, at.right, at.products, n);
    T earlier = 0;
    for (i64 t = 0; t < chunk.rows; ++t) {
      const T factor = s.left[t] * s.dt[t];
      dlog[t] += earlier;
      earlier += factor * rows::dot<T>(at.products + t * n, at.b_wide + t * n, n);
      scan::weighted_sum<T>(at.db + t * n, T(1), at.products + t * n, factor, n, at.db + t * n);
    }
    gemm::pack(Side::b, Operand<T>{dstate, 1, width}, width, n, at.right);
    multiply(chunk.rows, width, n, at.b_rows, at.right, at.du, width);
    for (i64 t = 0; t < chunk.rows; ++t) scan::times(at.du + t * width, width, s.left[t], at.du + t * width);
  }

  // Completes du and writes the gradients of x and dt.
  void finish_head(const ScanBlock& block, i64 h, const Rows<S>& x, const Rows<S>& dout, const Steps<T>& s, const ScanChunk& chunk,
                   const Buffers& at, const T* dlog, ParameterSums& sum) const {
    const i64 rows = chunk.rows, width = shape.P;
    const Rows<S> dx(to.x_BTX, block.b, h, shape.P);
    const T a = -std::exp(widen(in.a_log_H.template data<S>()[h])), d = widen(in.d_H.template data<S>()[h]);
    S* ddt = to.dt_BTH.template data<S>() + block.b * to.dt_BTH.stride(0) + h;
    gemm::pack(Side::a, Operand<T>{at.weights, 1, rows}, rows, rows, at.left);
    gemm::pack(Side::b, dout.by_column(chunk.begin), width, rows, at.right);
    multiply(rows, width, rows, at.left, at.right, at.du, width, chunk.continued);
    for (i64 t = 0; t < rows; ++t) {
      const S *x_row = x.row(chunk.begin + t), *dy_row = dout.row(chunk.begin + t);
      const T* du = at.du + t * width;
      scan::times(x_row, width, T(1), at.scaled);
      const T raw = s.slope[t] * (rows::dot<T>(at.scaled, du, width) + a * dlog[t]);
      scan::weighted_sum<S>(du, s.dt[t], dy_row, d, width, dx.row(chunk.begin + t));
      ddt[(chunk.begin + t) * to.dt_BTH.stride(1)] = narrow<S>(raw);
      sum.a_log += static_cast<double>(a) * static_cast<double>(s.dt[t]) * static_cast<double>(dlog[t]);
      sum.dt_bias += static_cast<double>(raw);
      sum.d += static_cast<double>(rows::dot<S>(x_row, dy_row, width));
    }
  }

  // Adds what the gradients of the scores give to those of b and c.
  void finish_group(const ScanBlock& block, const ScanChunk& chunk, const Buffers& at) const {
    const Rows<S> b(in.b_BTY, block.b, block.group, shape.N), c(in.c_BTY, block.b, block.group, shape.N);
    const i64 rows = chunk.rows, n = shape.N;
    gemm::pack(Side::a, Operand<T>{at.dscores, rows, 1}, rows, rows, at.left);
    gemm::pack(Side::b, b.by_column(chunk.begin), n, rows, at.right);
    multiply(rows, n, rows, at.left, at.right, at.dc, n, true);
    gemm::pack(Side::a, Operand<T>{at.dscores, 1, rows}, rows, rows, at.left);
    gemm::pack(Side::b, c.by_column(chunk.begin), n, rows, at.right);
    multiply(rows, n, rows, at.left, at.right, at.db, n, true);
  }

  // Adds the parts of the blocks of each group in order and writes the gradient of b or c.
  void add_blocks(T* partial, const Tensor& gradient) const {
    const i64 n = shape.N, each = shape.T * n;
    Stream::current().for_ranges(shape.B * shape.G * shape.T, std::max<i64>(1, (1 << 14) / n), [=, this](i64 begin, i64 end) {
      for (i64 i = begin; i < end; ++i) {
        const i64 t = i % shape.T, group = i / shape.T % shape.G, b = i / shape.T / shape.G;
        T* first = partial + (b * scan_blocks_of_row(shape) + group * scan_blocks_of_group(shape)) * each + t * n;
        for (i64 k = 1; k < scan_blocks_of_group(shape); ++k) scan::weighted_sum<T>(first, T(1), first + k * each, T(1), n, first);
        S* row = Rows<S>(gradient, b, group, n).row(t);
        for (i64 j = 0; j < n; ++j) row[j] = narrow<S>(first[j]);
      }
    });
  }

  void add_rows() const {
    for (i64 h = 0; h < shape.H; ++h) {
      ParameterSums all;
      for (i64 b = 0; b < shape.B; ++b) {
        const ParameterSums& part = sums[b * shape.H + h];
        all.a_log += part.a_log, all.dt_bias += part.dt_bias, all.d += part.d;
      }
      if (to.a_log_H.defined()) to.a_log_H.template data<T>()[h] = static_cast<T>(all.a_log);
      if (to.dt_bias_H.defined()) to.dt_bias_H.template data<T>()[h] = static_cast<T>(all.dt_bias);
      if (to.d_H.defined()) to.d_H.template data<T>()[h] = static_cast<T>(all.d);
    }
  }
};

void check(const ScanTensors& in, const ScanTensors& to, const Tensor& dy) {
  const DType dtype = in.x_BTX.dtype();
  const auto parameter = [&](const Tensor& t) {
    return !t.defined() || (t.shape() == in.d_H.shape() && t.dtype() == wide_dtype(dtype) && t.is_contiguous());
  };
  require(is_scan_view(dy, in.x_BTX.shape(), dtype) && is_scan_view(to.x_BTX, in.x_BTX.shape(), dtype) &&
              is_scan_view(to.b_BTY, in.b_BTY.shape(), dtype) && is_scan_view(to.c_BTY, in.c_BTY.shape(), dtype) &&
              is_scan_view(to.dt_BTH, in.dt_BTH.shape(), dtype) && parameter(to.a_log_H) && parameter(to.dt_bias_H) && parameter(to.d_H),
          "[selective_scan] expected gradients of the shapes and dtype of the inputs, and those of the parameters in the wide dtype");
}

}  // namespace
}  // namespace scan

i64 selective_scan_gradient_workspace_bytes(const ScanShape& shape, DType dtype) {
  if constexpr (kHasCuda) {
    if (Stream::current().device.works_as_cuda()) return cuda::selective_scan_gradient_workspace_bytes(shape, dtype);
  }
  const i64 elems = scan::lanes_of(shape) * scan::Sizes(shape).lane_elems(shape) + 2 * scan::partial_elems(shape);
  return elems * size_of(wide_dtype(dtype)) + shape.B * shape.H * static_cast<i64>(sizeof(scan::ParameterSums));
}

void selective_scan_gradient(const ScanTensors& in, const ScanOptions& options, const Tensor& dy, const ScanTensors& gradients,
                             const Tensor& workspace) {
  const ScanShape shape = scan_shape(in, options);
  check_scan_options(shape, options);
  scan::check(in, gradients, dy);
  require(workspace.bytes() >= selective_scan_gradient_workspace_bytes(shape, dy.dtype()),
          "[selective_scan] expected a workspace of at least selective_scan_gradient_workspace_bytes()");
  count_flops(scan_gradient_flops(shape));
  if (dy.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(dy, selective_scan_gradient(in, options, dy, gradients, workspace));
  for_dtype("selective_scan_gradient", dy.dtype(), [&]<class S>(S) {
    using T = Wide<S>;
    const i64 lane_elems = scan::Sizes(shape).lane_elems(shape);
    T* memory = reinterpret_cast<T*>(workspace.raw());
    T *db = memory + scan::lanes_of(shape) * lane_elems, *dc = db + scan::partial_elems(shape);
    auto* sums = reinterpret_cast<scan::ParameterSums*>(dc + scan::partial_elems(shape));
    const scan::Gradient<S> work{{shape, in, options}, dy, gradients, db, dc, sums};
    scan::run_blocks(shape, lane_elems, memory, work);
    work.add_blocks(db, gradients.b_BTY);
    work.add_blocks(dc, gradients.c_BTY);
    work.add_rows();
  });
}

}  // namespace spillway::kernels
