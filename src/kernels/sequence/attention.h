// Fused scaled dot-product attention for f32, f64, bf16 and f16; bf16 and f16 are computed in f32. Tensors are strided views in which the D
// elements of each head are contiguous. Legend: B = batch size, Tq = query positions, Tk = key positions, H = query heads, Hkv = key/value
// heads, D = elements of a head. Query head h uses key/value head h / (H / Hkv). With a causal mask, query t sees the keys s <= t + Tk -
// Tq. With a window, query t sees only the keys of the last `window` positions. With documents, a query sees no key before the beginning of
// its own document. The CPU works on tiles of kQueryTile query rows and needs memory linear in Tk. It distributes the work over at most
// kLanes sequences of work, each with a separate workspace; the distribution depends on the shape alone. A GPU uses tensor cores from
// compute capability 8.0 on, for bf16 and f16 heads of 32, 48, ... 256 elements. For such heads, probabilities and score gradients are
// rounded to the heads' dtype before they are multiplied with v, dout, q and k. Up to 16 queries over more than 512 keys are computed there
// in parts of 512 keys; their last bits may differ from those of the same queries among others.
#pragma once
#include "base/random.h"
#include "tensor/tensor.h"

namespace spillway::kernels {

/// Selects the kernels that a GPU uses: our own, or cuDNN's in the cases that cuDNN supports (attention_cudnn_cuda.h). The two libraries
/// round differently.
enum class AttentionLibrary { own, cudnn };

struct AttentionMask {
  double scale = 1;  // the factor of the scores, above 0
  bool causal = true;
  // the fraction of the probabilities that is dropped; the mask uses element (h * Tq + t) * Tk + s of sample first_sample + b
  double dropout = 0;
  RandomKey key;
  i64 first_sample = 0;
  AttentionLibrary library = AttentionLibrary::own;
  double softcap = 0;   // above 0: the soft cap, by which scores become softcap * tanh(scale * q k / softcap)
  i64 window = 0;       // above 0: a query sees its own position's key and the window - 1 keys before it; needs causal
  Tensor positions_BT;  // int32 [B, Tk]: each key's position in its document, from 0; undefined if a sequence is one document; needs causal
  // [H], in the dtype of q: each head's sink, a logit that takes part in every softmax but has no key and no value (Xiao et al.,
  // arXiv:2309.17453, as a parameter in gpt-oss); undefined if there are none
  Tensor sinks_H;
  /// Returns whether, among `keys` keys, only `causal` limits which keys a query sees: there is no soft cap, no window of fewer keys, and
  /// only one document per sequence.
  bool is_plain(i64 keys) const { return softcap == 0 && (window == 0 || window >= keys) && !positions_BT.defined(); }
};

/// Returns the bytes of workspace that attention() or its gradient needs for views of the shapes q[B, Tq, H, D] and k[B, Tk,
/// Hkv, D]. If the current stream belongs to a GPU, or to a meta device that imitates one, the result is what a GPU needs.
i64 attention_workspace_bytes(const Shape& q, const Shape& k, DType dtype, AttentionLibrary library = AttentionLibrary::own);
i64 attention_gradient_workspace_bytes(const Shape& q, const Shape& k, DType dtype, AttentionLibrary library = AttentionLibrary::own);

/// Computes out[B, Tq, H, D] and the logarithm of each query's sum of exponentials,
/// lse[B, H, Tq], which includes the sink. Both results are contiguous; lse is in wide_dtype of q.
void attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask, const Tensor& out, const Tensor& lse,
               const Tensor& workspace);

/// Overwrites dq, dk and dv with the gradients of attention(). dk and dv are summed over query heads and tiles in ascending order.
void attention_gradient(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out, const Tensor& lse, const Tensor& dout,
                        const AttentionMask& mask, const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& workspace);

/// Overwrites dsinks[H], in wide_dtype of q, with the gradients of the sinks: minus the sum over the batch and the queries, in an order
/// that depends on the shape alone, of the sink's probability times the scalar product of the rows of out and dout.
void attention_sinks_gradient(const Tensor& out, const Tensor& lse, const Tensor& dout, const Tensor& sinks_H, const Tensor& dsinks_H);

namespace cuda {
decltype(kernels::attention_workspace_bytes) attention_workspace_bytes;
decltype(kernels::attention_gradient_workspace_bytes) attention_gradient_workspace_bytes;
decltype(kernels::attention) attention;
decltype(kernels::attention_gradient) attention_gradient;
decltype(kernels::attention_sinks_gradient) attention_sinks_gradient;
}  // namespace cuda

}  // namespace spillway::kernels
