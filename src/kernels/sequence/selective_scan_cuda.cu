#include "kernels/sequence/selective_scan_chunks_cuda.h"

namespace spillway::kernels::cuda {
namespace scan {
namespace {

// Computes y = (grown c, decayed scores dt) (state, x) + d x for the chunks of a window and the heads of a block.
template <class S>
__global__ void __launch_bounds__(kBlockThreads)
    outputs(Problem<S> p, const Wide<S>* states, const Wide<S>* initial, View<S> y, Wide<S>* scratch) {
  using T = Wide<S>;
  __shared__ Steps<T> s;
  const int width = static_cast<int>(p.shape.P);
  T* scores = scratch + i64{blockIdx.x} * kChunk * kChunk;
  const i64 blocks = p.shape.B * scan_blocks_of_row(p.shape);
  for (i64 item = blockIdx.x; item < blocks * p.windows(); item += gridDim.x) {
    const ScanBlock block = scan_block(p.shape, item % blocks);
    for_chunks(p, block.b, item / blocks, [&](const ScanChunk& chunk) {
      __syncthreads();
      score(p, block, chunk, scores);
      const int rows = static_cast<int>(chunk.rows), n = chunk.continues ? static_cast<int>(p.shape.N) : 0;
      const i64 first = block.group * p.shape.N;
      for (i64 h = block.first; h < block.last; ++h) {
        load_steps(p, block.b, h, chunk, s);
        const T* state = chunk.begin == 0 ? initial + (block.b * p.shape.H + h) * p.state_elems()
                                          : states + p.state_at(block.b, kept_state(chunk.begin, kChunk), h) * p.state_elems();
        const T skip = widen(p.d[h]);
        block_product<S>(
            rows, width, n + rows,
            [&](int i, int e) {
              if (e < n) return s.grown[i] * widen(p.c.at(block.b, chunk.begin + i)[first + e]);
              const int j = e - n;
              return j <= i ? scores[i * kChunk + j] * std::exp(s.decay[i] - s.decay[j]) * s.dt[j] : T(0);
            },
            [&](int e, int j) { return e < n ? state[e * width + j] : widen(p.x.at(block.b, chunk.begin + e - n)[h * width + j]); },
            [&](int i, int j, T value) {
              const T x = widen(p.x.at(block.b, chunk.begin + i)[h * width + j]);
              y.at(block.b, chunk.begin + i)[h * width + j] = narrow<S>(std::fma(skip, x, value));
            });
      }
    });
  }
}

}  // namespace
}  // namespace scan

i64 selective_scan_workspace_bytes(const ScanShape& shape, DType dtype) { return scan::Sizes(shape, false).bytes(dtype); }

void selective_scan(const ScanTensors& in, const ScanOptions& options, const Tensor& initial, const Tensor& y, const Tensor& last,
                    const Tensor& workspace) {
  for_dtype("selective_scan", y.dtype(), [&]<class S>(S) {
    using T = Wide<S>;
    const scan::Problem<S> p(in, options, initial.defined(), last.defined());
    const scan::Sizes sizes(p.shape, false);
    const scan::Memory<T> m = sizes.cut<T>(workspace);
    scan::keep_states(p, m, data_or_null<T>(initial));
    launch("selective_scan", scan::outputs<S>, dim3(static_cast<unsigned>(sizes.blocks)), dim3(kBlockThreads), p,
           static_cast<const T*>(m.states), static_cast<const T*>(data_or_null<T>(initial)), scan::View<S>(y), m.scratch);
    // Only now, because the first and the last state may be one tensor.
    if (last.defined()) {
      for_each_on_gpu("selective_scan", last.elems(),
                      scan::CopyLast<T>{m.states, last.data<T>(), p.windows() + 1, p.shape.H * p.state_elems()});
    }
  });
}

}  // namespace spillway::kernels::cuda
