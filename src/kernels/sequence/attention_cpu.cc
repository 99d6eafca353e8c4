#include "kernels/sequence/attention.h"

#include <algorithm>
#include <functional>

#include "kernels/dispatch.h"
#include "kernels/elementwise/dropout.h"
#include "kernels/has_cuda.h"
#include "kernels/products/gemm.h"
#include "kernels/products/gemm_few_rows.h"
#include "kernels/sequence/attention_rows.h"
#include "tensor/flop_count.h"

namespace spillway::kernels {
namespace {

using gemm::Operand;
using gemm::Output;
using gemm::Packed;
using gemm::packed_elems;
using gemm::Side;

constexpr i64 kQueryTile = 32, kLanes = 16;

// The extents of an attention problem, and the sizes of its buffers. Sizes count elements of the type that the arithmetic uses.
struct Extents {
  i64 batch, queries, keys, heads, kv_heads, width;
  i64 group() const { return heads / kv_heads; }
  i64 scores_elems() const { return round_up(kQueryTile * keys, 16); }
  static i64 packed(i64 outer, i64 k) { return packed_elems<float>(outer, k); }
  // Returns the size of the packed left operand of a product. It is one of three
  // matrices: query rows by keys, keys by query rows, or query rows by width.
  i64 left_elems() const { return std::max({packed(kQueryTile, keys), packed(keys, kQueryTile), packed(kQueryTile, width)}); }
  i64 forward_elems() const { return packed(keys, width) + packed(width, keys) + scores_elems() + left_elems(); }
  // Returns the number of elements of a buffer for dk or dv, which are sums over tiles. If
  // their dtype is as wide as the sums, they are summed in place and the buffer is empty.
  i64 sums_elems(DType dtype) const { return dtype == wide_dtype(dtype) ? 0 : round_up(keys * width, 16); }
  i64 backward_elems(DType dtype) const {
    return 2 * packed(keys, width) + packed(width, keys) + 2 * scores_elems() + left_elems() + packed(width, kQueryTile) +
           round_up(keys, 16) + 2 * sums_elems(dtype);
  }
};

Extents extents_of(const Shape& q, const Shape& k) {
  const bool fits =
      q.rank() == 4 && k.rank() == 4 && q[0] == k[0] && q[3] == k[3] && k[2] > 0 && q[2] % k[2] == 0 && q[1] > 0 && k[1] >= q[1];
  if (!fits) {
    throw Error(ErrorCode::bug, "[attention] expected q[B, Tq, H, D] and k[B, Tk, Hkv, D] with Tk >= Tq and Hkv dividing H, got " +
                                    to_string(q) + " and " + to_string(k));
  }
  return {q[0], q[1], k[1], q[2], k[2], q[3]};
}

// Returns the number of multiplications in one product of all queries with the keys that they see. Documents are not taken into account.
double multiplied_pairs(const Extents& e, const AttentionMask& mask) {
  i64 pairs = 0;
  for (i64 t = 0; t < e.queries; ++t) {
    const i64 seen = mask.causal ? t + 1 + e.keys - e.queries : e.keys;
    pairs += mask.window > 0 ? std::min(seen, mask.window) : seen;
  }
  return static_cast<double>(pairs) * static_cast<double>(e.batch * e.heads * e.width);
}

i64 lanes_of(i64 items) { return std::min(items, kLanes); }

// One head of a view [B, T, H, D], seen as a matrix [T, D].
template <class T>
struct Head {
  T* data;
  i64 stride;
  Head(const Tensor& view, i64 b, i64 h) : data(view.data<T>() + b * view.stride(0) + h * view.stride(2)), stride(view.stride(1)) {}
  T* row(i64 t) const { return data + t * stride; }
  // by_row() and by_column() give the head, from row t on, as an operand of a product. by_row() has the rows as the outer dimension and the
  // width as the inner dimension; by_column() has the width as the outer and the rows as the inner dimension.
  Operand<T> by_row(i64 t = 0) const { return {row(t), stride, 1}; }
  Operand<T> by_column(i64 t = 0) const { return {row(t), 1, stride}; }
};

// Allocates pieces of one task's workspace, one after the other. A task computes a sequence of heads.
template <class T>
struct Pieces {
  T* next;
  T* take(i64 elems) { return std::exchange(next, next + elems); }
};

// A tile of query rows [begin, begin + rows) of head h of the batch's sequence b.
template <class T>
struct Tile {
  const Extents& extents;
  const AttentionMask& mask;
  i64 b, h, begin, rows;
  const i32* positions;  // the positions of the keys within their documents; may be null
  // seen(t) returns the end of the range of keys that row t of the tile sees. visible() returns the largest such number among the rows of
  // the tile.
  i64 seen(i64 t) const { return mask.causal ? position(t) + 1 : extents.keys; }
  i64 visible() const { return seen(rows - 1); }
  // first(t) returns the index of the first key that row t of the tile sees. first() returns the smallest such index among the rows of the
  // tile.
  i64 first(i64 t) const {
    const i64 of_window = mask.window > 0 ? position(t) + 1 - mask.window : 0;
    return std::max({i64{0}, of_window, positions ? position(t) - positions[b * extents.keys + position(t)] : 0});
  }
  i64 first() const { return first(0); }
  // first_row() and first_summed() return the key at which products begin, which is first() rounded down: to a packed strip if the keys are
  // rows (first_row), or to a chunk of the inner dimension if the keys are summed over (first_summed).
  i64 first_row() const { return first() / gemm::kStrip * gemm::kStrip; }
  i64 first_summed() const { return first() / gemm::kDepth<T> * gemm::kDepth<T>; }
  void drop_row(i64 t, T* x) const {
    if (mask.dropout == 0) return;
    const i64 first = (h * extents.queries + begin + t) * extents.keys;
    drop(mask.key, mask.first_sample + b, first, seen(t), mask.dropout, x);
  }
  // Sets the elements of row t to zero for keys that the row does not see.
  void clear_unseen(i64 t, T* x) const {
    std::fill(x + first_summed(), x + first(t), T(0));
    std::fill(x + seen(t), x + visible(), T(0));
  }

 private:
  i64 position(i64 t) const { return begin + t + extents.keys - extents.queries; }
};

const i32* positions_of(const AttentionMask& mask) { return mask.positions_BT.defined() ? mask.positions_BT.data<i32>() : nullptr; }

// Returns the factor by which scores must still be multiplied before the softmax.
// The factor is 1 if there is a soft cap, because the cap already applies the scale.
template <class T>
T scale_of_scores(const AttentionMask& mask) {
  return mask.softcap > 0 ? T(1) : static_cast<T>(mask.scale);
}

// Computes C = A B of packed operands. multiply_add() computes C += A B.
template <class T, class Out>
void multiply(i64 m, i64 n, i64 k, Packed<T> a, Packed<T> b, Out* c, i64 stride) {
  gemm::multiply<T, Out>(m, n, k, a, b, {c, stride});
}
template <class T>
void multiply_add(i64 m, i64 n, i64 k, Packed<T> a, Packed<T> b, T* c, i64 stride) {
  gemm::multiply<T, T>(m, n, k, a, b, {c, stride, c, stride});
}

// Computes the forward pass. S is the dtype of the views. T is the type
// of the arithmetic, and of scores, probabilities and packed operands.
template <class S>
struct Forward {
  using T = Wide<S>;
  Extents extents;
  AttentionMask mask;
  const Tensor &q, &k, &v, &out, &lse;

  void item(i64 b, i64 h, T* workspace) const {
    if (few_queries(b, h, workspace)) return;
    Pieces<T> pieces{workspace};
    const i64 keys = extents.keys, width = extents.width;
    T *k_packed = pieces.take(Extents::packed(keys, width)), *v_packed = pieces.take(Extents::packed(width, keys));
    T *scores = pieces.take(extents.scores_elems()), *left = pieces.take(extents.left_elems());
    const Head<S> query(q, b, h), key(k, b, h / extents.group()), value(v, b, h / extents.group()), result(out, b, h);
    gemm::pack(Side::b, key.by_row(), keys, width, k_packed);
    gemm::pack(Side::b, value.by_column(), width, keys, v_packed);
    T* lses = lses_of(b, h);
    for (i64 begin = 0; begin < extents.queries; begin += kQueryTile) {
      const Tile<T> tile{extents, mask, b, h, begin, std::min(kQueryTile, extents.queries - begin), positions_of(mask)};
      const i64 visible = tile.visible(), row = tile.first_row(), summed = tile.first_summed();
      gemm::pack(Side::a, query.by_row(begin), tile.rows, width, left);
      multiply<T>(tile.rows, visible - row, width, {left, width}, {k_packed + Extents::packed(row, width), width}, scores + row, keys);
      softmax_rows(tile, scores, lses + begin);
      gemm::pack(Side::a, Operand<T>{scores + summed, keys, 1}, tile.rows, visible - summed, left);
      multiply<T>(tile.rows, width, visible - summed, {left, visible - summed}, {v_packed, keys, summed}, result.row(begin), result.stride);
    }
  }

  // Computes a head with few queries, as in generation, without packing keys and values. The products read them in place and give bitwise
  // the result that packed operands would give. Returns false if one of the products cannot be computed in place.
  bool few_queries(i64 b, i64 h, T* workspace) const {
    if constexpr (gemm::kHasFewRows<S, T>) {
      const Head<S> query(q, b, h), key(k, b, h / extents.group()), value(v, b, h / extents.group()), result(out, b, h);
      const Tile<T> tile{extents, mask, b, h, 0, extents.queries, positions_of(mask)};
      const i64 row = tile.first_row(), summed = tile.first_summed(), rows = tile.rows, keys = extents.keys, width = extents.width;
      const i64 products = tile.visible() - row, terms = tile.visible() - summed;
      if (!gemm::takes_few_rows(rows, products, key.by_row()) || !gemm::takes_few_rows(rows, width, value.by_column())) return false;
      Pieces<T> pieces{workspace};
      T* scores = pieces.take(extents.scores_elems());
      u32* words = reinterpret_cast<u32*>(pieces.take(extents.left_elems()));
      gemm::pack_words<S, T>(query.by_row(), rows, width, words);
      gemm::multiply_few_rows<T, S, T>({rows, products, width, round_up(width, 2), words, key.by_row(row), {scores + row, keys}}, 0,
                                       products);
      softmax_rows(tile, scores, lses_of(b, h));
      gemm::pack_words<T, T>({scores + summed, keys, 1}, rows, terms, words);
      gemm::multiply_few_rows<T, S, S>(
          {rows, width, terms, round_up(terms, 2), words, value.by_column(summed), {result.row(0), result.stride}}, 0, width);
      return true;
    }
    return false;
  }

  T* lses_of(i64 b, i64 h) const { return lse.data<T>() + (b * extents.heads + h) * extents.queries; }

  void softmax_rows(const Tile<T>& tile, T* scores, T* lses) const {
    for (i64 t = 0; t < tile.rows; ++t) {
      T *row = scores + t * extents.keys, *seen = row + tile.first(t);
      const i64 count = tile.seen(t) - tile.first(t);
      if (mask.softcap > 0) rows::cap(seen, count, static_cast<T>(mask.scale), static_cast<T>(mask.softcap));
      lses[t] = rows::softmax(seen, count, scale_of_scores<T>(mask));
      if (mask.sinks_H.defined()) lses[t] = add_sink(widen(mask.sinks_H.data<S>()[tile.h]), seen, count, lses[t]);
      tile.drop_row(t, row);
      tile.clear_unseen(t, row);
    }
  }
  // Lets a sink take its share of the probabilities p of a row. Returns the log-sum-exp with the sink, given that without it.
  static T add_sink(T sink, T* p, i64 n, T lse) {
    const T top = std::max(sink, lse), all = top + std::log(std::exp(lse - top) + std::exp(sink - top)), rest = std::exp(lse - all);
    for (i64 s = 0; s < n; ++s) p[s] *= rest;
    return all;
  }
};

template <class S>
struct Backward {
  using T = Wide<S>;
  static constexpr bool kNarrow = !std::is_same_v<S, T>;
  Extents extents;
  AttentionMask mask;
  const Tensor &q, &k, &v, &out, &lse, &dout, &dq, &dk, &dv;

  struct Buffers {
    // packed operands and sums of one tile; `capped` holds the scores of a row after the soft cap
    T *k_rows, *v_rows, *k_columns, *scores, *gradients, *left, *right, *capped;
  };

  // The matrix [keys, width] in which dk or dv of a head is summed. The sums are made
  // in dk or dv itself, or in a buffer that is rounded into dk or dv at the end.
  struct Sums {
    T* data;
    i64 stride;
    T* row(i64 s) const { return data + s * stride; }
  };
  Sums sums_for(const Head<S>& result, Pieces<T>& pieces) const {
    if constexpr (kNarrow) {
      return {pieces.take(extents.sums_elems(DTypeOf<S>::value)), extents.width};
    } else {
      return {result.data, result.stride};
    }
  }
  void finish(const Sums& sums, const Head<S>& result) const {
    if constexpr (kNarrow) {
      for (i64 s = 0; s < extents.keys; ++s) {
        for (i64 i = 0; i < extents.width; ++i) result.row(s)[i] = narrow<S>(sums.data[s * sums.stride + i]);
      }
    }
  }

  // Computes the gradients for all query heads of one key/value head, so that only one task writes the dk and dv of this head.
  void item(i64 b, i64 kv, T* workspace) const {
    Pieces<T> pieces{workspace};
    const i64 keys = extents.keys, width = extents.width;
    Buffers buffers{};
    buffers.k_rows = pieces.take(Extents::packed(keys, width));
    buffers.v_rows = pieces.take(Extents::packed(keys, width));
    buffers.k_columns = pieces.take(Extents::packed(width, keys));
    buffers.scores = pieces.take(extents.scores_elems());
    buffers.gradients = pieces.take(extents.scores_elems());
    buffers.left = pieces.take(extents.left_elems());
    buffers.right = pieces.take(Extents::packed(width, kQueryTile));
    buffers.capped = pieces.take(round_up(keys, 16));
    const Head<S> key(k, b, kv), value(v, b, kv), dkey(dk, b, kv), dvalue(dv, b, kv);
    const Sums key_sums = sums_for(dkey, pieces), value_sums = sums_for(dvalue, pieces);
    gemm::pack(Side::b, key.by_row(), keys, width, buffers.k_rows);
    gemm::pack(Side::b, value.by_row(), keys, width, buffers.v_rows);
    gemm::pack(Side::b, key.by_column(), width, keys, buffers.k_columns);
    for (i64 s = 0; s < keys; ++s) {
      std::fill_n(key_sums.data + s * key_sums.stride, width, T(0));
      std::fill_n(value_sums.data + s * value_sums.stride, width, T(0));
    }
    for (i64 h = kv * extents.group(); h < (kv + 1) * extents.group(); ++h) {
      for (i64 begin = 0; begin < extents.queries; begin += kQueryTile) {
        const Tile<T> tile{extents, mask, b, h, begin, std::min(kQueryTile, extents.queries - begin), positions_of(mask)};
        score_gradients(tile, buffers);
        add_products(tile, buffers, key_sums, value_sums);
      }
    }
    finish(key_sums, dkey);
    finish(value_sums, dvalue);
  }

  // Computes `scores`, the probabilities after dropout, and `gradients`, the gradients of the scores before they are scaled.
  void score_gradients(const Tile<T>& tile, const Buffers& to) const {
    const Head<S> query(q, tile.b, tile.h), result(out, tile.b, tile.h), dresult(dout, tile.b, tile.h);
    const i64 row = tile.first_row(), count = tile.visible() - row, keys = extents.keys, width = extents.width,
              skipped = Extents::packed(row, width);
    gemm::pack(Side::a, query.by_row(tile.begin), tile.rows, width, to.left);
    multiply<T>(tile.rows, count, width, {to.left, width}, {to.k_rows + skipped, width}, to.scores + row, keys);
    gemm::pack(Side::a, dresult.by_row(tile.begin), tile.rows, width, to.left);
    multiply<T>(tile.rows, count, width, {to.left, width}, {to.v_rows + skipped, width}, to.gradients + row, keys);
    const T* lses = lse.data<T>() + (tile.b * extents.heads + tile.h) * extents.queries + tile.begin;
    const T scale = static_cast<T>(mask.scale), cap = static_cast<T>(mask.softcap);
    for (i64 t = 0; t < tile.rows; ++t) {
      T *p = to.scores + t * keys, *dp = to.gradients + t * keys;
      const i64 first = tile.first(t), seen = tile.seen(t) - first;
      const T delta = rows::dot<S>(result.row(tile.begin + t), dresult.row(tile.begin + t), width);
      if (cap > 0) {
        rows::cap(p + first, seen, scale, cap);
        std::copy_n(p + first, seen, to.capped);
      }
      rows::probabilities(p + first, seen, scale_of_scores<T>(mask), lses[t]);
      tile.drop_row(t, dp);
      rows::softmax_gradient(p + first, dp + first, seen, delta, scale);
      if (cap > 0) rows::cap_gradient(to.capped, dp + first, seen, cap);
      tile.drop_row(t, p);
      tile.clear_unseen(t, p);
      tile.clear_unseen(t, dp);
    }
  }

  // With p = `scores` and ds = `gradients`, computes dv += p^T dout, dk += ds^T q and dq = ds k.
  void add_products(const Tile<T>& tile, const Buffers& from, const Sums& dkey, const Sums& dvalue) const {
    const Head<S> query(q, tile.b, tile.h), dresult(dout, tile.b, tile.h), dquery(dq, tile.b, tile.h);
    const i64 first = tile.first(), seen = tile.visible() - first, summed = tile.first_summed(), count = tile.visible() - summed;
    const i64 keys = extents.keys, width = extents.width, rows = tile.rows;
    gemm::pack(Side::a, Operand<T>{from.scores + first, 1, keys}, seen, rows, from.left);
    gemm::pack(Side::b, dresult.by_column(tile.begin), width, rows, from.right);
    multiply_add<T>(seen, width, rows, {from.left, rows}, {from.right, rows}, dvalue.row(first), dvalue.stride);
    gemm::pack(Side::a, Operand<T>{from.gradients + first, 1, keys}, seen, rows, from.left);
    gemm::pack(Side::b, query.by_column(tile.begin), width, rows, from.right);
    multiply_add<T>(seen, width, rows, {from.left, rows}, {from.right, rows}, dkey.row(first), dkey.stride);
    gemm::pack(Side::a, Operand<T>{from.gradients + summed, keys, 1}, rows, count, from.left);
    multiply<T>(rows, width, count, {from.left, count}, {from.k_columns, keys, summed}, dquery.row(tile.begin), dquery.stride);
  }
};

// Calls work.item(sequence of the batch, head, the task's workspace) for all heads, in `lanes` tasks that run on several threads. Task l
// computes the items l, l + lanes, and so on, and has its own workspace.
template <class T, class F>
void run_items(i64 batch, i64 heads, i64 lane_elems, const Tensor& workspace, const F& work) {
  const i64 items = batch * heads, lanes = lanes_of(items);
  T* memory = reinterpret_cast<T*>(workspace.raw());
  Stream::current().run(lanes, [&](i64 lane, int) {
    for (i64 item = lane; item < items; item += lanes) work.item(item / heads, item % heads, memory + lane * lane_elems);
  });
}

void check(const AttentionMask& mask, const Tensor& q, const Tensor& k, const Tensor& v, std::initializer_list<Tensor> views) {
  require(mask.scale > 0 && mask.dropout >= 0 && mask.dropout < 1, "[attention] expected a scale above 0 and a dropout fraction in [0, 1)");
  require(k.shape() == v.shape() && k.dtype() == q.dtype() && v.dtype() == q.dtype(),
          "[attention] expected k and v of the same shape and dtype");
  require(mask.softcap >= 0 && mask.window >= 0 && (mask.causal || (mask.window == 0 && !mask.positions_BT.defined())),
          "[attention] expected a soft cap and a window of at least 0, and a window or documents only with a causal mask");
  require(!mask.sinks_H.defined() ||
              (mask.sinks_H.shape() == Shape{q.size(2)} && mask.sinks_H.dtype() == q.dtype() && mask.sinks_H.is_contiguous()),
          "[attention] expected contiguous sinks [H] of the dtype of q");
  const Tensor& positions = mask.positions_BT;
  require(!positions.defined() ||
              (positions.shape() == Shape{k.size(0), k.size(1)} && positions.dtype() == DType::int32 && positions.is_contiguous()),
          "[attention] expected contiguous int32 positions [B, Tk]: each key's position within its document");
  for (const Tensor& view : views) {
    require(view.rank() == 4 && (view.size(3) == 1 || view.stride(3) == 1) && view.dtype() == q.dtype(),
            "[attention] expected all tensors as views of 4 axes whose last axis is contiguous, and of the dtype of q");
  }
}

}  // namespace

i64 attention_workspace_bytes(const Shape& q, const Shape& k, DType dtype, [[maybe_unused]] AttentionLibrary library) {
  const Extents extents = extents_of(q, k);
  if constexpr (kHasCuda) {
    if (Stream::current().device.works_as_cuda()) return cuda::attention_workspace_bytes(q, k, dtype, library);
  }
  return lanes_of(extents.batch * extents.heads) * extents.forward_elems() * size_of(wide_dtype(dtype));
}

i64 attention_gradient_workspace_bytes(const Shape& q, const Shape& k, DType dtype, [[maybe_unused]] AttentionLibrary library) {
  const Extents extents = extents_of(q, k);
  if constexpr (kHasCuda) {
    if (Stream::current().device.works_as_cuda()) return cuda::attention_gradient_workspace_bytes(q, k, dtype, library);
  }
  return lanes_of(extents.batch * extents.kv_heads) * extents.backward_elems(dtype) * size_of(wide_dtype(dtype));
}

void attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask, const Tensor& out, const Tensor& lse,
               const Tensor& workspace) {
  const Extents extents = extents_of(q.shape(), k.shape());
  check(mask, q, k, v, {q, k, v, out});
  require(workspace.bytes() >= attention_workspace_bytes(q.shape(), k.shape(), q.dtype(), mask.library),
          "[attention] expected a workspace of at least attention_workspace_bytes()");
  count_flops(4 * multiplied_pairs(extents, mask));
  if (out.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(out, attention(q, k, v, mask, out, lse, workspace));
  for_dtype("attention", q.dtype(), [&]<class T>(T) {
    run_items<Wide<T>>(extents.batch, extents.heads, extents.forward_elems(), workspace, Forward<T>{extents, mask, q, k, v, out, lse});
  });
}

void attention_gradient(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out, const Tensor& lse, const Tensor& dout,
                        const AttentionMask& mask, const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& workspace) {
  const Extents extents = extents_of(q.shape(), k.shape());
  check(mask, q, k, v, {q, k, v, out, dout, dq, dk, dv});
  require(workspace.bytes() >= attention_gradient_workspace_bytes(q.shape(), k.shape(), q.dtype(), mask.library),
          "[attention] expected a workspace of at least attention_gradient_workspace_bytes()");
  count_flops(10 * multiplied_pairs(extents, mask));
  if (dout.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(dout, attention_gradient(q, k, v, out, lse, dout, mask, dq, dk, dv, workspace));
  for_dtype("attention_gradient", q.dtype(), [&]<class T>(T) {
    run_items<Wide<T>>(extents.batch, extents.kv_heads, extents.backward_elems(q.dtype()), workspace,
                       Backward<T>{extents, mask, q, k, v, out, lse, dout, dq, dk, dv});
  });
}

void attention_sinks_gradient(const Tensor& out, const Tensor& lse, const Tensor& dout, const Tensor& sinks_H, const Tensor& dsinks_H) {
  const i64 batch = out.size(0), queries = out.size(1), heads = out.size(2), width = out.size(3);
  require(sinks_H.shape() == Shape{heads} && dsinks_H.shape() == Shape{heads} && sinks_H.dtype() == out.dtype() &&
              dsinks_H.dtype() == wide_dtype(out.dtype()) && sinks_H.is_contiguous() && dsinks_H.is_contiguous(),
          "[attention] expected contiguous sinks [H] of the dtype of q, and their gradients in its wide dtype");
  if (dout.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(dout, attention_sinks_gradient(out, lse, dout, sinks_H, dsinks_H));
  for_dtype("attention_sinks_gradient", out.dtype(), [&]<class S>(S) {
    using T = Wide<S>;
    Stream::current().run(heads, [&](i64 h, int) {
      const T sink = widen(sinks_H.data<S>()[h]);
      double sum = 0;
      for (i64 b = 0; b < batch; ++b) {
        const Head<S> result(out, b, h), dresult(dout, b, h);
        const T* lses = lse.data<T>() + (b * heads + h) * queries;
        for (i64 t = 0; t < queries; ++t) {
          sum -= static_cast<double>(std::exp(sink - lses[t])) * static_cast<double>(rows::dot<S>(result.row(t), dresult.row(t), width));
        }
      }
      dsinks_H.data<T>()[h] = static_cast<T>(sum);
    });
  });
}

}  // namespace spillway::kernels
