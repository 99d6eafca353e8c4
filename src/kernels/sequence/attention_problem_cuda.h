// The arguments of attention as GPU kernels receive them. Included only by kernels/*/*_cuda.cu.
#pragma once
#include <cmath>
#include <numbers>
#include <type_traits>

#include "kernels/packs_cuda.h"
#include "kernels/sequence/attention.h"

namespace spillway::kernels::attention_problem {

/// Adjacent rows of a head. Rows with an index of `rows` or more lie beyond the head's end and count as zero.
template <class S>
struct Rows {
  const S* at;
  i64 stride, rows;
  bool aligned;
};

/// A view of shape [B, T, H, D] as it is passed to GPU kernels.
template <class S>
struct View {
  S* data = nullptr;
  i64 batch = 0, row = 0, head = 0;
  // aligned: all rows begin at multiples of four elements; in_words: all rows begin at multiples of 16 bytes
  bool aligned = false, in_words = false;
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
  i64 window;            // the size of the attention window; 0 if there is none, or if it holds all keys
  const i32* positions;  // [batch, keys]: the position of each key in its document; may be null
  __device__ i64 seen(i64 t) const { return causal ? min(keys, t + 1 + keys - queries) : keys; }
  /// Returns the first key that query t sees. If t lies beyond the last query, returns the first key that the last query sees.
  __device__ i64 first(i64 b, i64 t) const {
    const i64 position = min(t, queries - 1) + keys - queries;
    const i64 of_window = window > 0 ? max(i64{0}, position + 1 - window) : 0;
    return positions ? max(of_window, position - positions[b * keys + position]) : of_window;
  }
  /// Returns whether windows or documents hide the first keys from some queries.
  bool has_ranges() const { return window > 0 || positions; }
  __device__ i64 first_query(i64 s) const { return causal ? max(i64{0}, s - (keys - queries)) : 0; }
};

/// Decides which elements dropout drops: those with uniform(key, sample, element) < p, as in kernels/elementwise/dropout.h. Each element
/// has its own counter of the random generator and takes one call of Philox.
template <class T>
struct Dropout {
  PhiloxRounds rounds;  // the round keys are computed on the host, since kernel parameters cost neither registers nor additions
  i64 first_sample = 0;
  u64 limit = 0;  // elements whose 64 random bits are below `limit` (only its upper 53 bits count) are dropped; 0: no dropout
  T kept = 1;
  Dropout() = default;
  explicit Dropout(const AttentionMask& mask)
      : rounds(mask.key),
        first_sample(mask.first_sample),
        limit(static_cast<u64>(std::ceil(mask.dropout * 0x1p53)) << 11),
        kept(static_cast<T>(1 / (1 - mask.dropout))) {}
  __device__ bool drops(i64 b, i64 element) const {
    const auto words = philox(rounds, static_cast<u64>(first_sample + b), static_cast<u64>(element));
    return (words[0] | static_cast<u64>(words[1]) << 32) < limit;
  }
};

/// The arguments that the forward and the backward kernels have in common.
template <class S>
struct Problem {
  Extents extents;
  Dropout<Wide<S>> dropout;
  Wide<S> scale, cap;                   // `cap` is the limit of the soft cap, which is applied before the scale; 0 if there is none
  float cap_inverse = 0, cap_rate = 0;  // 1 / cap and 2 log2(e) / cap, computed on the host, since kernel parameters cost no registers
  View<const S> q, k, v;
  __device__ bool drops(i64 b, i64 h, i64 t, i64 s) const { return dropout.drops(b, (h * extents.queries + t) * extents.keys + s); }
  /// capped() applies the soft cap to an unscaled score. slope() returns the derivative of the soft cap, given the score after it.
  __device__ Wide<S> capped(Wide<S> x) const { return cap > 0 ? cap * std::tanh(x / cap) : x; }
  __device__ Wide<S> slope(Wide<S> capped) const { return cap > 0 ? std::fma(-capped / cap, capped / cap, Wide<S>(1)) : Wide<S>(1); }
  /// Returns the factor by which dropout multiplies the probability of query t and key s: 0 if it is dropped.
  __device__ Wide<S> kept(i64 b, i64 h, i64 t, i64 s) const {
    if (dropout.limit == 0) return 1;
    return drops(b, h, t, s) ? Wide<S>(0) : dropout.kept;
  }
};
template <class S>
struct Forward : Problem<S> {
  View<S> out;
  Wide<S>* lse;
  const S* sinks;  // [H]; may be null
  Wide<S>* parts;  // the workspace
  /// Ends the softmax of a row of head h. `top` is the largest score, scaled, and `total` the sum of exp(score - top). Adds the head's sink
  /// to `total`, and returns the log-sum-exp.
  __device__ Wide<S> end_softmax(i64 h, Wide<S> top, Wide<S>& total) const {
    if (!sinks) return top + std::log(total);
    const Wide<S> sink = widen(sinks[h]), most = top < sink ? sink : top, all = total * std::exp(top - most) + std::exp(sink - most);
    total += std::exp(sink - top);  // infinite, so that the probabilities are 0, if the sink is far above
    return most + std::log(all);
  }
};
template <class S>
struct Backward : Problem<S> {
  View<const S> out, dout;
  const Wide<S>* lse;
  Wide<S>* delta;  // [B, H, Tq]: the scalar product of each row of out and dout
  View<S> dq, dk, dv;
};

inline Extents extents_of(const Tensor& q, const Tensor& k, const AttentionMask& mask) {
  return {q.size(0),
          q.size(1),
          k.size(1),
          q.size(2),
          k.size(2),
          q.size(3),
          mask.causal,
          mask.window < k.size(1) ? mask.window : 0,
          mask.positions_BT.defined() ? mask.positions_BT.data<i32>() : nullptr};
}

template <class S>
void set(Problem<S>& f, const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask) {
  using T = Wide<S>;
  f.extents = extents_of(q, k, mask);
  f.dropout = Dropout<T>(mask);
  f.scale = static_cast<T>(mask.scale), f.cap = static_cast<T>(mask.softcap / mask.scale);
  if (f.cap > 0) {
    f.cap_inverse = static_cast<float>(mask.scale / mask.softcap);
    f.cap_rate = static_cast<float>(2 * std::numbers::log2e * mask.scale / mask.softcap);
  }
  f.q = View<const S>(q), f.k = View<const S>(k), f.v = View<const S>(v);
}

}  // namespace spillway::kernels::attention_problem
