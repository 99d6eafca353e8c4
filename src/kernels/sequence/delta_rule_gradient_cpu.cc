#include "kernels/dispatch.h"
#include "kernels/has_cuda.h"
#include "kernels/sequence/delta_rule.h"
#include "kernels/sequence/delta_rule_chunks_cpu.h"
#include "tensor/flop_count.h"

namespace spillway::kernels {
namespace delta {
namespace {

// The parts of the gradients of a head's parameters that one row of the batch contributes.
struct ParameterSums {
  double a_log = 0, dt_bias = 0;
};

// The buffers of a lane. What is kept of each position or chunk of each value head comes last.
template <class T>
struct Buffers {
  Keys<T> keys;
  Solution<T> solution;
  T *q_across, *u_rows, *state_rows;  // packed operands
  T *doutput, *dvalue, *dqk, *dkk;    // [chunk, chunk]
  T *from_output, *from_values;       // [chunk, K]: products of the state and gradients
  T *dq, *dk;                         // [chunk, K]
  T *du, *dr;                         // [chunk, V]
  T *dstates, *states, *us, *inverses;
  static i64 elems(const DeltaShape& s) {
    const i64 chunk = chunk_of(s), heads = s.H / s.J;
    return Keys<T>::elems(s) + Solution<T>::elems(s) + packed(s.K, chunk) + 2 * operand_elems(s) + 4 * round_up(chunk * chunk, 16) +
           4 * round_up(chunk * s.K, 16) + 2 * round_up(chunk * s.V, 16) + heads * state_elems(s) * (1 + kept_states(s.T, kScanChunk)) +
           round_up(heads * s.T * s.V, 16) + round_up(heads * s.T * chunk, 16);
  }
  Buffers(const DeltaShape& s, Pieces<T> from) : keys(s, from), solution(s, from) {
    const i64 chunk = chunk_of(s), heads = s.H / s.J;
    q_across = from.take(packed(s.K, chunk)), u_rows = from.take(operand_elems(s)), state_rows = from.take(operand_elems(s));
    for (T** square : {&doutput, &dvalue, &dqk, &dkk}) *square = from.take(chunk * chunk);
    for (T** of_keys : {&from_output, &from_values, &dq, &dk}) *of_keys = from.take(chunk * s.K);
    for (T** of_values : {&du, &dr}) *of_values = from.take(chunk * s.V);
    dstates = from.take(heads * state_elems(s)), states = from.take(heads * state_elems(s) * kept_states(s.T, kScanChunk));
    us = from.take(heads * s.T * s.V), inverses = from.take(heads * s.T * chunk);
  }
};

template <class S>
struct Gradient : Rule<S> {
  using T = Wide<S>;
  using Rule<S>::shape, Rule<S>::in, Rule<S>::options;
  const Tensor& dout;
  const DeltaTensors& to;
  ParameterSums* sums;  // [B, H]

  // One value head in a chunk, and what is kept of it.
  struct Head {
    i64 h;
    ScanChunk chunk;
    Gates<T> gates;
    T *state, *dstate, *u, *inverse;
  };
  Head head_of(const Item& item, i64 h, const ScanChunk& chunk, const Buffers<T>& at) const {
    const i64 index = h - item.first, first = index * shape.T + chunk.begin;
    return {h,
            chunk,
            this->gates(item.b, h, chunk),
            kept(item, h, chunk.begin, at),
            at.dstates + index * state_elems(shape),
            at.us + first * shape.V,
            at.inverses + first * chunk_of(shape)};
  }
  // Returns the state of a value head before element t.
  T* kept(const Item& item, i64 h, i64 t, const Buffers<T>& at) const {
    return at.states + (kept_state(t, kScanChunk) * (shape.H / shape.J) + h - item.first) * state_elems(shape);
  }

  void item(const Item& item, T* memory) const {
    Buffers<T> at(shape, Pieces<T>{memory});
    const i32* positions = this->positions(item.b);
    for (i64 t = 0; t < shape.T;) {
      const ScanChunk chunk = scan_chunk(positions, t, shape.T);
      this->share(item, chunk, at.solution.right, at.keys);
      for (i64 h = item.first; h < item.last; ++h) {
        const Head head = head_of(item, h, chunk, at);
        this->solve(item, h, head.gates, chunk, head.state, at.keys, head.inverse, head.u, at.solution, at.state_rows);
        if (chunk.continued) this->advance(head.gates, chunk, head.state, at.keys, head.u, kept(item, h, t + chunk.rows, at), at.solution);
      }
      t += chunk.rows;
    }
    ParameterSums* row_sums = sums + item.b * shape.H;
    for (i64 h = item.first; h < item.last; ++h) row_sums[h] = {};
    for (i64 end = shape.T; end > 0;) {
      const ScanChunk chunk = scan_chunk(positions, previous_chunk(positions, end, kScanChunk), shape.T);
      const i64 n = chunk.rows;
      this->share(item, chunk, at.solution.right, at.keys);
      if (chunk.continues) gemm::pack(Side::a, Operand<T>{at.keys.q, 1, shape.K}, shape.K, n, at.q_across);
      for (T* square : {at.dqk, at.dkk}) std::fill_n(square, n * n, T(0));
      for (T* wide : {at.dq, at.dk}) std::fill_n(wide, n * shape.K, T(0));
      for (i64 h = item.first; h < item.last; ++h) backward(item, head_of(item, h, chunk, at), at, row_sums[h]);
      finish_keys(item, chunk, at);
      end = chunk.begin;
    }
  }

  // Computes the gradients of one value head and adds its parts of those of q and k. dlog collects the gradients of g. It is summed from
  // terms that reach across each position, so that terms of one position need not cancel.
  void backward(const Item& item, const Head& head, const Buffers<T>& at, ParameterSums& sum) const {
    const ScanChunk& chunk = head.chunk;
    const Gates<T>& g = head.gates;
    const Rows<S> rows_of_dout(dout, item.b, head.h, shape.V);
    T dlog[kScanChunk], dbeta[kScanChunk];
    solve_backward(rows_of_dout, head, at);
    weights_backward(head, at, dlog, dbeta);
    if (chunk.continues) from_state(head, at, dlog, dbeta);
    if (chunk.continued) to_state(head, at, dlog);
    finish_head(item, head, at, dlog, dbeta, sum);
    if (!chunk.continues) return;
    const i64 n = chunk.rows, width = shape.V;
    if (chunk.continued) times(head.dstate, shape.K * width, g.total, head.dstate);
    const Solution<T>& s = at.solution;
    for (i64 t = 0; t < n; ++t) times(rows_of_dout.row(chunk.begin + t), width, g.grown[t], s.rows + t * width);
    gemm::pack(Side::b, Operand<T>{s.rows, 1, width}, width, n, s.right);
    multiply(shape.K, width, n, at.q_across, s.right, head.dstate, width, chunk.continued);
    for (i64 t = 0; t < n; ++t) times(at.dr + t * width, width, -g.beta[t] * g.grown[t], s.rows + t * width);
    gemm::pack(Side::b, Operand<T>{s.rows, 1, width}, width, n, s.right);
    multiply(shape.K, width, n, at.keys.k_across, s.right, head.dstate, width, true);
  }

  // Computes the gradients of the weights, of u and of r: du = to_output^T dout + left (k dstate), dr = (I + A)^-T du. Also computes
  // products of dout and -dr with the state, from_output and from_values.
  void solve_backward(const Rows<S>& rows_of_dout, const Head& head, const Buffers<T>& at) const {
    const Gates<T>& g = head.gates;
    const Solution<T>& s = at.solution;
    const i64 n = head.chunk.rows, width = shape.V, begin = head.chunk.begin;
    for (i64 t = 0; t < n; ++t) {
      T* row = s.to_output + t * n;
      delta::weights(at.keys.qk + t * n, at.keys.kk + t * n, g.decay, t + 1, g.decay[t], g.beta[t], row, s.to_value + t * n);
      std::fill(row + t + 1, row + n, T(0));
    }
    gemm::pack(Side::a, rows_of_dout.by_row(begin), n, width, s.left);
    gemm::pack(Side::b, Operand<T>{head.u, width, 1}, n, width, at.u_rows);
    multiply(n, n, width, s.left, at.u_rows, at.doutput, n);
    if (head.chunk.continues) {
      gemm::pack(Side::b, Operand<T>{head.state, width, 1}, shape.K, width, at.state_rows);
      multiply(n, shape.K, width, s.left, at.state_rows, at.from_output, shape.K);
    }
    if (head.chunk.continued) {
      gemm::pack(Side::b, Operand<T>{head.dstate, 1, width}, width, shape.K, s.right);
      multiply(n, width, shape.K, at.keys.k_rows, s.right, at.du, width);
      for (i64 t = 0; t < n; ++t) times(at.du + t * width, width, g.left[t], at.du + t * width);
    }
    gemm::pack(Side::a, Operand<T>{s.to_output, 1, n}, n, n, s.left);
    gemm::pack(Side::b, rows_of_dout.by_column(begin), width, n, s.right);
    multiply(n, width, n, s.left, s.right, at.du, width, head.chunk.continued);
    gemm::pack(Side::a, Operand<T>{head.inverse, 1, n}, n, n, s.left);
    gemm::pack(Side::b, Operand<T>{at.du, 1, width}, width, n, s.right);
    multiply(n, width, n, s.left, s.right, at.dr, width);
    times(at.dr, n * width, T(-1), s.rows);
    gemm::pack(Side::a, Operand<T>{s.rows, width, 1}, n, width, s.left);
    multiply(n, n, width, s.left, at.u_rows, at.dvalue, n);
    if (head.chunk.continues) multiply(n, shape.K, width, s.left, at.state_rows, at.from_values, shape.K);
  }

  // Adds to the gradients of q k^T and k k^T, and begins dlog and dbeta.
  void weights_backward(const Head& head, const Buffers<T>& at, T* dlog, T* dbeta) const {
    const Gates<T>& g = head.gates;
    const i64 n = head.chunk.rows;
    T across[kScanChunk] = {};  // for each position, the sum over later ones of the gradients of their exponents
    for (i64 t = n - 1; t >= 0; --t) {
      const i64 row = t * n;
      at.dvalue[row + t] = T(0);
      dbeta[t] = delta::weights_gradient(at.keys.qk + row, at.keys.kk + row, at.doutput + row, at.dvalue + row, g.decay, t + 1, g.decay[t],
                                         g.beta[t], at.dqk + row, at.dkk + row, across);
      dlog[t] = scan::sum(across, t);
    }
  }

  // Adds what reaches o and u from the state before the chunk.
  void from_state(const Head& head, const Buffers<T>& at, T* dlog, T* dbeta) const {
    const Gates<T>& g = head.gates;
    const i64 width = shape.K;
    T later = 0;
    for (i64 t = head.chunk.rows - 1; t >= 0; --t) {
      const i64 row = t * width;
      const T of_values = g.grown[t] * rows::dot<T>(at.from_values + row, at.keys.k + row, width);
      dbeta[t] += of_values;
      later += g.grown[t] * rows::dot<T>(at.from_output + row, at.keys.q + row, width) + g.beta[t] * of_values;
      dlog[t] += later;
      weighted_sum<T>(at.dq + row, T(1), at.from_output + row, g.grown[t], width, at.dq + row);
      weighted_sum<T>(at.dk + row, T(1), at.from_values + row, g.beta[t] * g.grown[t], width, at.dk + row);
    }
  }

  // Adds what reaches the state after the chunk.
  void to_state(const Head& head, const Buffers<T>& at, T* dlog) const {
    const Gates<T>& g = head.gates;
    const Solution<T>& s = at.solution;
    const i64 n = head.chunk.rows, width = shape.V;
    for (i64 t = 0; t < n; ++t) times(head.u + t * width, width, g.left[t], s.scaled + t * width);
    gemm::pack(Side::a, Operand<T>{s.scaled, width, 1}, n, width, s.left);
    gemm::pack(Side::b, Operand<T>{head.dstate, width, 1}, shape.K, width, s.right);
    multiply(n, shape.K, width, s.left, s.right, at.from_output, shape.K);
    T earlier = head.chunk.continues ? g.total * rows::dot<T>(head.state, head.dstate, shape.K * width) : T(0);
    for (i64 t = 0; t < n; ++t) {
      const i64 row = t * shape.K;
      dlog[t] += earlier;
      earlier += rows::dot<T>(at.from_output + row, at.keys.k + row, shape.K);
      weighted_sum<T>(at.dk + row, T(1), at.from_output + row, T(1), shape.K, at.dk + row);
    }
  }

  // Writes the gradients of v, a and b.
  void finish_head(const Item& item, const Head& head, const Buffers<T>& at, const T* dlog, const T* dbeta, ParameterSums& sum) const {
    const Gates<T>& g = head.gates;
    const i64 width = shape.V, begin = head.chunk.begin;
    const Rows<S> v(in.v_BTY, item.b, head.h, width), dv(to.v_BTY, item.b, head.h, width);
    const T rate = -std::exp(widen(in.a_log_H.template data<S>()[head.h]));
    S* da = to.a_BTH.template data<S>() + item.b * to.a_BTH.stride(0) + head.h;
    S* db = to.b_BTH.template data<S>() + item.b * to.b_BTH.stride(0) + head.h;
    for (i64 t = 0; t < head.chunk.rows; ++t) {
      const S* row = v.row(begin + t);
      const T* dr = at.dr + t * width;
      times(row, width, T(1), at.solution.scaled);
      const T of_beta = dbeta[t] + rows::dot<T>(at.solution.scaled, dr, width), of_a = rate * dlog[t] * g.slope[t];
      S* to_row = dv.row(begin + t);
      for (i64 j = 0; j < width; ++j) to_row[j] = narrow<S>(g.beta[t] * dr[j]);
      db[(begin + t) * to.b_BTH.stride(1)] = narrow<S>(of_beta * g.beta[t] * (1 - g.beta[t]));
      da[(begin + t) * to.a_BTH.stride(1)] = narrow<S>(of_a);
      sum.a_log += static_cast<double>(rate) * static_cast<double>(g.soft[t]) * static_cast<double>(dlog[t]);
      sum.dt_bias += static_cast<double>(of_a);
    }
  }

  // Adds what the gradients of q k^T and k k^T give to those of q and k, and writes those.
  void finish_keys(const Item& item, const ScanChunk& chunk, const Buffers<T>& at) const {
    const Solution<T>& s = at.solution;
    const i64 n = chunk.rows, width = shape.K;
    gemm::pack(Side::a, Operand<T>{at.dqk, n, 1}, n, n, s.left);
    gemm::pack(Side::b, Operand<T>{at.keys.k, 1, width}, width, n, s.right);
    multiply(n, width, n, s.left, s.right, at.dq, width, true);
    for (i64 t = 0; t < n; ++t) {
      for (i64 j = 0; j < n; ++j) s.to_output[t * n + j] = at.dkk[t * n + j] + at.dkk[j * n + t];
    }
    gemm::pack(Side::a, Operand<T>{s.to_output, n, 1}, n, n, s.left);
    multiply(n, width, n, s.left, s.right, at.dk, width, true);
    gemm::pack(Side::a, Operand<T>{at.dqk, 1, n}, n, n, s.left);
    gemm::pack(Side::b, Operand<T>{at.keys.q, 1, width}, width, n, s.right);
    multiply(n, width, n, s.left, s.right, at.dk, width, true);
    finish_rows(in.q_BTX, to.q_BTX, item, chunk, this->scale(), at.keys.q_norm, at.keys.q, at.dq);
    finish_rows(in.k_BTX, to.k_BTX, item, chunk, T(1), at.keys.k_norm, at.keys.k, at.dk);
  }

  // The backward step of widen_rows(): writes the gradients of rows from those of y, the normalized and scaled rows.
  void finish_rows(const Tensor& from, const Tensor& gradient, const Item& item, const ScanChunk& chunk, T factor, const T* norms,
                   const T* y, const T* dy) const {
    const i64 width = shape.K;
    const Rows<S> x(from, item.b, item.key, width), dx(gradient, item.b, item.key, width);
    for (i64 t = 0; t < chunk.rows; ++t) {
      const T along = options.normalize ? norms[t] * norms[t] * rows::dot<T>(y + t * width, dy + t * width, width) : T(0);
      weighted_sum<S>(dy + t * width, factor * norms[t], x.row(chunk.begin + t), -along, width, dx.row(chunk.begin + t));
    }
  }

  void add_rows() const {
    for (i64 h = 0; h < shape.H; ++h) {
      ParameterSums all;
      for (i64 b = 0; b < shape.B; ++b) all.a_log += sums[b * shape.H + h].a_log, all.dt_bias += sums[b * shape.H + h].dt_bias;
      if (to.a_log_H.defined()) to.a_log_H.template data<T>()[h] = static_cast<T>(all.a_log);
      if (to.dt_bias_H.defined()) to.dt_bias_H.template data<T>()[h] = static_cast<T>(all.dt_bias);
    }
  }
};

void check(const DeltaTensors& in, const DeltaTensors& to, const Tensor& dout) {
  const DType dtype = in.q_BTX.dtype();
  const auto view = [&](const Tensor& t, const Tensor& like) { return is_scan_view(t, like.shape(), dtype); };
  const auto parameter = [&](const Tensor& t) {
    return !t.defined() || (t.shape() == in.a_log_H.shape() && t.dtype() == wide_dtype(dtype) && t.is_contiguous());
  };
  require(view(dout, in.v_BTY) && view(to.q_BTX, in.q_BTX) && view(to.k_BTX, in.k_BTX) && view(to.v_BTY, in.v_BTY) &&
              view(to.a_BTH, in.a_BTH) && view(to.b_BTH, in.b_BTH) && parameter(to.a_log_H) && parameter(to.dt_bias_H),
          "[delta_rule] expected gradients of the shapes and dtype of the inputs, and those of the parameters in the wide dtype");
}

}  // namespace
}  // namespace delta

i64 delta_rule_gradient_workspace_bytes(const DeltaShape& shape, DType dtype) {
  if constexpr (kHasCuda) {
    if (Stream::current().device.works_as_cuda()) return cuda::delta_rule_gradient_workspace_bytes(shape, dtype);
  }
  return delta::lanes_of(shape) * delta::Buffers<float>::elems(shape) * size_of(wide_dtype(dtype)) +
         shape.B * shape.H * static_cast<i64>(sizeof(delta::ParameterSums));
}

void delta_rule_gradient(const DeltaTensors& in, const DeltaOptions& options, const Tensor& dout, const DeltaTensors& gradients,
                         const Tensor& workspace) {
  const DeltaShape shape = delta_shape(in, options);
  delta::check(in, gradients, dout);
  require(workspace.bytes() >= delta_rule_gradient_workspace_bytes(shape, dout.dtype()),
          "[delta_rule] expected a workspace of at least delta_rule_gradient_workspace_bytes()");
  count_flops(delta_rule_gradient_flops(shape));
  if (dout.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(dout, delta_rule_gradient(in, options, dout, gradients, workspace));
  for_dtype("delta_rule_gradient", dout.dtype(), [&]<class S>(S) {
    using T = Wide<S>;
    T* memory = reinterpret_cast<T*>(workspace.raw());
    const i64 elems = delta::Buffers<float>::elems(shape);
    const delta::Gradient<S> work{
        {shape, in, options}, dout, gradients, reinterpret_cast<delta::ParameterSums*>(memory + delta::lanes_of(shape) * elems)};
    delta::run_items(shape, elems, memory, work);
    work.add_rows();
  });
}

}  // namespace spillway::kernels
