// What attention is asked for, as the kernels of a GPU get it. Included by kernels/*_cuda.cu alone.
#pragma once
#include <cmath>
#include <type_traits>

#include "kernels/attention/attention.h"
#include "kernels/packs_cuda.h"

namespace spillway::kernels::attention_problem {

/// Rows of a head; those from `rows` on are zero.
template <class S>
struct Rows {
  const S* at;
  i64 stride, rows;
  bool aligned;
};

/// A view [B, T, H, D].
template <class S>
struct View {
  S* data = nullptr;
  i64 batch = 0, row = 0, head = 0;
  bool aligned = false, in_words = false;  // all rows begin at a multiple of four elements, of 16 bytes
  View() = default;
  explicit View(const Tensor& t) : data(t.data<std::remove_const_t<S>>()), batch(t.stride(0)), row(t.stride(1)), head(t.stride(2)) {
    aligned = begin_at_multiples<4>();
    in_words = begin_at_multiples<kPackOf<S>>();
  }
  template <int kCount>
  bool begin_at_multiples() const {
    return batch % kCount == 0 && rows_aligned<kCount>(data, row) && head % kCount == 0;
  }
  __device__ S* at(i64 b, i64 h, i64 t) const { return data + b * batch + h * head + t * row; }
  __device__ Rows<std::remove_const_t<S>> rows(i64 b, i64 h, i64 t, i64 end) const { return {at(b, h, t), row, end - t, aligned}; }
};

struct Extents {
  i64 batch, queries, keys, heads, kv_heads, width;
  bool causal;
  __device__ i64 seen(i64 t) const { return causal ? min(keys, t + 1 + keys - queries) : keys; }
  __device__ i64 first_query(i64 s) const { return causal ? max(i64{0}, s - (keys - queries)) : 0; }
};

template <class T>
struct Dropout {
  RandomKey key;
  i64 first_sample;
  u64 limit;  // 0: none
  T kept;
  /// What an element is multiplied by.
  __device__ T factor(i64 b, i64 element) const {
    if (limit == 0) return 1;
    const auto words = philox(key, static_cast<u64>(first_sample + b), static_cast<u64>(element));
    return (words[0] | static_cast<u64>(words[1]) << 32) >> 11 < limit ? T(0) : kept;
  }
};

/// What both directions have.
template <class S>
struct Problem {
  Extents extents;
  Dropout<Wide<S>> dropout;
  Wide<S> scale;
  View<const S> q, k, v;
  __device__ Wide<S> kept(i64 b, i64 h, i64 t, i64 s) const { return dropout.factor(b, (h * extents.queries + t) * extents.keys + s); }
};
template <class S>
struct Forward : Problem<S> {
  View<S> out;
  Wide<S>* lse;
};
template <class S>
struct Backward : Problem<S> {
  View<const S> out, dout;
  const Wide<S>* lse;
  Wide<S>* delta;  // [B, H, Tq]: out . dout
  View<S> dq, dk, dv;
};

inline Extents extents_of(const Tensor& q, const Tensor& k, const AttentionMask& mask) {
  return {q.size(0), q.size(1), k.size(1), q.size(2), k.size(2), q.size(3), mask.causal};
}

template <class S>
void set(Problem<S>& f, const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask) {
  using T = Wide<S>;
  f.extents = extents_of(q, k, mask);
  f.dropout = {mask.key, mask.first_sample, static_cast<u64>(std::ceil(mask.dropout * 0x1p53)), static_cast<T>(1 / (1 - mask.dropout))};
  f.scale = static_cast<T>(mask.scale);
  f.q = View<const S>(q), f.k = View<const S>(k), f.v = View<const S>(v);
}

}  // namespace spillway::kernels::attention_problem
