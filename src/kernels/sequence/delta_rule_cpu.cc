#include "kernels/dispatch.h"
#include "kernels/has_cuda.h"
#include "kernels/sequence/delta_rule.h"
#include "kernels/sequence/delta_rule_chunks_cpu.h"
#include "tensor/flop_count.h"

namespace spillway::kernels {
namespace delta {
namespace {

// Returns the elements of a lane's workspace.
i64 forward_elems(const DeltaShape& s) {
  const i64 chunk = chunk_of(s);
  return Keys<float>::elems(s) + Solution<float>::elems(s) + operand_elems(s) + round_up(chunk * chunk, 16) + round_up(chunk * s.V, 16) +
         s.H / s.J * state_elems(s);
}

template <class S>
struct Forward : Rule<S> {
  using T = Wide<S>;
  using Rule<S>::shape, Rule<S>::in;
  const Tensor &initial, &output, &last;

  struct Buffers {
    Keys<T> keys;
    Solution<T> solution;
    T *packed_state, *inverse, *u, *states;
    Buffers(const DeltaShape& s, Pieces<T> from) : keys(s, from), solution(s, from) {
      packed_state = from.take(operand_elems(s));
      inverse = from.take(chunk_of(s) * chunk_of(s)), u = from.take(chunk_of(s) * s.V);
      states = from.next;
    }
  };

  void item(const Item& item, T* memory) const {
    Buffers at(shape, Pieces<T>{memory});
    const i64 elems = shape.K * shape.V;
    const auto held = [&](i64 h) { return at.states + (h - item.first) * state_elems(shape); };
    const auto in_tensor = [&](const Tensor& states, i64 h) { return states.template data<T>() + (item.b * shape.H + h) * elems; };
    for (i64 h = item.first; initial.defined() && h < item.last; ++h) std::copy_n(in_tensor(initial, h), elems, held(h));
    const i32* positions = this->positions(item.b);
    for (i64 t = 0; t < shape.T;) {
      const ScanChunk chunk = scan_chunk(positions, t, shape.T, initial.defined(), last.defined());
      this->share(item, chunk, at.solution.right, at.keys);
      for (i64 h = item.first; h < item.last; ++h) head(item, h, chunk, held(h), at);
      t += chunk.rows;
    }
    for (i64 h = item.first; last.defined() && h < item.last; ++h) std::copy_n(held(h), elems, in_tensor(last, h));
  }

  // Computes o = grown (q state) + to_output u, and the next state.
  void head(const Item& item, i64 h, const ScanChunk& chunk, T* state, const Buffers& at) const {
    const Gates<T> g = this->gates(item.b, h, chunk);
    const Solution<T>& s = at.solution;
    const i64 n = chunk.rows, width = shape.V;
    this->solve(item, h, g, chunk, state, at.keys, at.inverse, at.u, s, at.packed_state);
    if (chunk.continues) {
      multiply(n, width, shape.K, at.keys.q_rows, at.packed_state, s.rows, width);
      for (i64 t = 0; t < n; ++t) times(s.rows + t * width, width, g.grown[t], s.rows + t * width);
    }
    const Rows<S> result(output, item.b, h, width);
    gemm::pack(Side::a, Operand<T>{s.to_output, n, 1}, n, n, s.left);
    gemm::pack(Side::b, Operand<T>{at.u, 1, width}, width, n, s.right);
    gemm::multiply<T, S>(n, width, n, {s.left, n}, {s.right, n},
                         {result.row(chunk.begin), result.stride, chunk.continues ? s.rows : nullptr, width});
    if (chunk.continued) this->advance(g, chunk, state, at.keys, at.u, state, s);
  }
};

void check_state(const DeltaShape& s, const Tensor& state, DType dtype) {
  require(!state.defined() || (state.shape() == Shape{s.B, s.H, s.K, s.V} && state.dtype() == wide_dtype(dtype) && state.is_contiguous()),
          "[delta_rule] expected contiguous states [B, H, K, V] in the wide dtype of q");
}

}  // namespace
}  // namespace delta

DeltaShape delta_shape(const DeltaTensors& in, const DeltaOptions& options) {
  const i64 heads = in.a_log_H.elems(), keys = options.key_heads;
  require(keys > 0 && heads > 0 && heads % keys == 0 && in.q_BTX.rank() == 3 && in.q_BTX.size(2) % keys == 0 && in.v_BTY.rank() == 3 &&
              in.v_BTY.size(2) % heads == 0 && in.q_BTX.elems() > 0 && in.v_BTY.elems() > 0,
          "[delta_rule] expected q [B, T, J * K], v [B, T, H * V] and a_log [H], with J dividing H");
  const DeltaShape s{in.q_BTX.size(0), in.q_BTX.size(1), keys, heads, in.q_BTX.size(2) / keys, in.v_BTY.size(2) / heads};
  const DType dtype = in.q_BTX.dtype();
  const auto view = [&](const Tensor& t, i64 columns) { return is_scan_view(t, Shape{s.B, s.T, columns}, dtype); };
  const auto parameter = [&](const Tensor& t) { return t.shape() == Shape{heads} && t.dtype() == dtype && t.is_contiguous(); };
  require(view(in.q_BTX, keys * s.K) && view(in.k_BTX, keys * s.K) && view(in.v_BTY, heads * s.V) && view(in.a_BTH, heads) &&
              view(in.b_BTH, heads) && parameter(in.a_log_H) && parameter(in.dt_bias_H),
          "[delta_rule] expected q and k [B, T, J * K], v [B, T, H * V], a and b [B, T, H], and a_log and dt_bias [H], of one dtype, with "
          "contiguous last axes");
  const Tensor& positions = options.positions_BT;
  require(!positions.defined() || (positions.shape() == Shape{s.B, s.T} && positions.dtype() == DType::int32 && positions.is_contiguous()),
          "[delta_rule] expected contiguous int32 positions [B, T]: each element's position within its document");
  return s;
}

i64 delta_rule_workspace_bytes(const DeltaShape& shape, DType dtype) {
  if constexpr (kHasCuda) {
    if (Stream::current().device.works_as_cuda()) return cuda::delta_rule_workspace_bytes(shape, dtype);
  }
  return delta::lanes_of(shape) * delta::forward_elems(shape) * size_of(wide_dtype(dtype));
}

void delta_rule(const DeltaTensors& in, const DeltaOptions& options, const Tensor& initial, const Tensor& output, const Tensor& final,
                const Tensor& workspace) {
  const DeltaShape shape = delta_shape(in, options);
  delta::check_state(shape, initial, in.q_BTX.dtype());
  delta::check_state(shape, final, in.q_BTX.dtype());
  require(is_scan_view(output, in.v_BTY.shape(), in.v_BTY.dtype()), "[delta_rule] expected o of the shape and dtype of v");
  require(workspace.bytes() >= delta_rule_workspace_bytes(shape, output.dtype()),
          "[delta_rule] expected a workspace of at least delta_rule_workspace_bytes()");
  count_flops(delta_rule_flops(shape));
  if (output.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(output, delta_rule(in, options, initial, output, final, workspace));
  for_dtype("delta_rule", output.dtype(), [&]<class S>(S) {
    delta::run_items(shape, delta::forward_elems(shape), reinterpret_cast<Wide<S>*>(workspace.raw()),
                     delta::Forward<S>{{shape, in, options}, initial, output, final});
  });
}

}  // namespace spillway::kernels
