#include "kernels/sequence/delta_rule_chunks_cuda.h"

namespace spillway::kernels::cuda {
namespace delta {
namespace {

// Computes o = (grown q, (q k^T) D) (state, u) for the chunks of a window and one head.
template <class S>
__global__ void __launch_bounds__(kBlockThreads) outputs(Problem<S> p, Memory<Wide<S>> m, const Wide<S>* initial, View<S> o) {
  using T = Wide<S>;
  __shared__ Gates<T> g;
  __shared__ T scores[kSquare];
  const i64 row = blockIdx.z, h = blockIdx.y, width = p.shape.V;
  const int keys = static_cast<int>(p.shape.K);
  for_chunks(p, row, blockIdx.x, [&](const ScanChunk& chunk) {
    load_gates(p, row, h, chunk, g);
    const Head<S> head(p, m, row, h, chunk);
    const int n = static_cast<int>(chunk.rows), of_state = chunk.continues ? keys : 0;
    block_product<S>(
        n, n, keys, [&](int i, int e) { return head.q(i, e); }, [&](int e, int j) { return head.k(j, e); },
        [&](int i, int j, T value) { scores[i * kChunk + j] = j <= i ? value * std::exp(g.decay[i] - g.decay[j]) : T(0); });
    __syncthreads();
    const T* state = chunk.begin == 0 ? initial + (row * p.shape.H + h) * p.state_elems() : m.states + p.before(chunk, row, h);
    const T* u = m.u + p.position_at(row, h, chunk.begin, width);
    block_product<S>(
        n, static_cast<int>(width), of_state + n,
        [&](int i, int e) { return e < of_state ? g.grown[i] * head.q(i, e) : scores[i * kChunk + e - of_state]; },
        [&](int e, int j) { return e < of_state ? state[e * width + j] : u[(e - of_state) * width + j]; },
        [&](int i, int j, T value) { o.at(row, chunk.begin + i)[h * width + j] = narrow<S>(value); });
  });
}

}  // namespace
}  // namespace delta

i64 delta_rule_workspace_bytes(const DeltaShape& shape, DType dtype) { return delta::Sizes(shape, false).bytes(dtype); }

void delta_rule(const DeltaTensors& in, const DeltaOptions& options, const Tensor& initial, const Tensor& output, const Tensor& last,
                const Tensor& workspace) {
  for_dtype("delta_rule", output.dtype(), [&]<class S>(S) {
    using T = Wide<S>;
    const delta::Problem<S> p(in, options, initial.defined(), last.defined());
    const delta::Memory<T> m = delta::Sizes(p.shape, false).cut<T>(workspace);
    const T* given = data_or_null<T>(initial);
    delta::keep_states(p, m, given);
    launch("delta_rule", delta::outputs<S>, delta::chunks_of(p.shape), dim3(kBlockThreads), p, m, given, delta::View<S>(output));
    // Only now, because the first and the last state may be one tensor.
    if (last.defined()) {
      for_each_on_gpu("delta_rule", last.elems(),
                      scan::CopyLast<T>{m.states, last.data<T>(), p.windows() + 1, p.shape.H * p.state_elems()});
    }
  });
}

}  // namespace spillway::kernels::cuda
