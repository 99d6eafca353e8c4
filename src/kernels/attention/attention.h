// Fused scaled dot-product attention: f32, f64, bf16 and f16 (all arithmetic of the narrow ones in f32), on strided views in which each
// head's D elements are contiguous. Legend: B rows, Tq, Tk query and key positions, H, Hkv query and key/value heads (head h uses h / (H /
// Hkv)), D elements of a head. With a causal mask query t sees keys s <= t + Tk - Tq, with a window only those of the last `window`
// positions, and never keys before the beginning of its document.
// On the CPU it works on tiles of kQueryTile query rows, needs memory linear in Tk, and distributes the work over at most kLanes lanes by
// shape alone, each with its own workspace. On a GPU from compute capability 8.0 on, bf16 and f16 heads of 32, 48, ... 128 elements use
// tensor cores, for which probabilities and score gradients are rounded to that type before they are multiplied with v, dout, q and k.
#pragma once
#include "base/random.h"
#include "tensor/tensor.h"

namespace spillway::kernels {

/// The kernels that a GPU uses: our own, or cuDNN's for the cases that those support (attention_cudnn_cuda.h). The two give different bits.
enum class AttentionLibrary { own, cudnn };

struct AttentionMask {
  double scale = 1;  // factor of the scores, above 0
  bool causal = true;
  double dropout = 0;  // fraction of the probabilities; the mask uses element (h * Tq + t) * Tk + s of sample first_sample + b
  RandomKey key;
  i64 first_sample = 0;
  AttentionLibrary library = AttentionLibrary::own;
  double softcap = 0;   // above 0: scores become softcap * tanh(scale * q k / softcap)
  i64 window = 0;       // above 0: a query sees its own position's key and the window - 1 keys before it; needs causal
  Tensor positions_BT;  // [B, Tk] int32: each key's position (0, 1, ...) in its document; undefined: one document a row; needs causal
  /// Returns whether there is neither a soft cap nor a window nor documents, so that only `causal` limits what a query sees.
  bool is_plain() const { return softcap == 0 && window == 0 && !positions_BT.defined(); }
};

/// Return the bytes of workspace for views of the shapes q[B, Tq, H, D] and k[B, Tk, Hkv, D]. If the current stream is a GPU's or stands
/// for one, they return what a GPU needs.
i64 attention_workspace_bytes(const Shape& q, const Shape& k, DType dtype, AttentionLibrary library = AttentionLibrary::own);
i64 attention_gradient_workspace_bytes(const Shape& q, const Shape& k, DType dtype, AttentionLibrary library = AttentionLibrary::own);

/// Computes out[B, Tq, H, D] and the log-sum-exps lse[B, H, Tq], which are contiguous and in wide_dtype of q.
void attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask, const Tensor& out, const Tensor& lse,
               const Tensor& workspace);

/// Writes all three gradients whole. dk and dv are summed over query heads and tiles in ascending order.
void attention_gradient(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out, const Tensor& lse, const Tensor& dout,
                        const AttentionMask& mask, const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& workspace);

namespace cuda {
decltype(kernels::attention_workspace_bytes) attention_workspace_bytes;
decltype(kernels::attention_gradient_workspace_bytes) attention_gradient_workspace_bytes;
decltype(kernels::attention) attention;
decltype(kernels::attention_gradient) attention_gradient;
}  // namespace cuda

}  // namespace spillway::kernels
