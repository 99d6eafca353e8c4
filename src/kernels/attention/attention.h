// Fused scaled dot-product attention, f32, f64, bf16 and f16 (all arithmetic in f32), on strided views (each head's D elements contiguous).
// Legend: B rows, Tq, Tk query and key positions, H, Hkv query and key/value heads (head h uses h / (H / Hkv)), D width. With a causal mask
// query t sees keys s <= t + Tk - Tq, with a window those of the last `window` positions, and never beyond the beginning of its document.
// On the CPU tiles of kQueryTile query rows, memory linear in Tk, and work dealt to at most kLanes lanes by shape alone, each with its own
// workspace. On a GPU from compute capability 8.0 on, bf16 and f16 heads of 32, 48, ... 128 elements go to tensor cores, for which
// probabilities and the gradients of scores are rounded to that type where they are multiplied with v, dout, q and k.
#pragma once
#include "base/random.h"
#include "tensor/tensor.h"

namespace spillway::kernels {

/// Whose kernels a GPU is given: ours, or cuDNN's for what those take (attention_cudnn_cuda.h). Bits are of the one or the other.
enum class AttentionLibrary { own, cudnn };

struct AttentionMask {
  double scale = 1;  // > 0
  bool causal = true;
  double dropout = 0;  // of the probabilities: element (h * Tq + t) * Tk + s of sample first_sample + b
  RandomKey key;
  i64 first_sample = 0;
  AttentionLibrary library = AttentionLibrary::own;
  double softcap = 0;  // above 0: scores are softcap * tanh(scale * q k / softcap)
  i64 window = 0;      // above 0: a query sees its own position's key and the window - 1 before it; causal alone
  Tensor
      positions_BT;  // [B, Tk] int32, contiguous: of each key in its document, from 0 in steps of 1; undefined: a row is one; causal alone
  /// Whether each query sees all keys up to its own, by their plain scores.
  bool is_plain() const { return softcap == 0 && window == 0 && !positions_BT.defined(); }
};

/// Bytes for views of these shapes: q[B, Tq, H, D], k[B, Tk, Hkv, D]; what a GPU needs differs, where the stream in force works as one.
i64 attention_workspace_bytes(const Shape& q, const Shape& k, DType dtype, AttentionLibrary library = AttentionLibrary::own);
i64 attention_gradient_workspace_bytes(const Shape& q, const Shape& k, DType dtype, AttentionLibrary library = AttentionLibrary::own);

/// out[B, Tq, H, D]; lse[B, H, Tq] contiguous, in wide_dtype of q.
void attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask, const Tensor& out, const Tensor& lse,
               const Tensor& workspace);

/// All three gradients, written whole; dk and dv sum over query heads and tiles in ascending order.
void attention_gradient(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out, const Tensor& lse, const Tensor& dout,
                        const AttentionMask& mask, const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& workspace);

namespace cuda {
decltype(kernels::attention_workspace_bytes) attention_workspace_bytes;
decltype(kernels::attention_gradient_workspace_bytes) attention_gradient_workspace_bytes;
decltype(kernels::attention) attention;
decltype(kernels::attention_gradient) attention_gradient;
}  // namespace cuda

}  // namespace spillway::kernels
