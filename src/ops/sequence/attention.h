// Scaled dot-product attention whose memory is linear in T (Dao et al., arXiv:2205.14135). Forward saves q, k, v, the output, and one
// log-sum-exp of the scores for each position of each query head. Backward recomputes the probabilities tile by tile. Legend: B = batch
// size, T = positions, H = query heads, Hkv = key/value heads, D = elements of a head.
#pragma once
#include "autograd/tape.h"
#include "base/random.h"
#include "kernels/sequence/attention.h"

namespace spillway::ops {

using autograd::Variable;

struct AttentionOptions {
  double scale = 0;    // the factor of the dot products q k, usually 1/sqrt(D); 0 is refused
  bool causal = true;  // position t attends to positions <= t only
  double dropout = 0;  // the fraction of the probabilities that are dropped, in [0, 1)
  RandomKey key;       // the random key of the dropout mask
  // The index of the batch's first sequence among all sequences of the run. The dropout mask depends on it, so that a sequence loses the
  // same elements however the batch is cut into micro-batches.
  i64 first_sample = 0;
  kernels::AttentionLibrary library = kernels::AttentionLibrary::own;  // the implementation to use on a GPU; a CPU ignores it
  double softcap = 0;  // above 0: the scores become softcap * tanh(scale * q k / softcap) (Gemma 2, arXiv:2408.00118)
  i64 window = 0;      // above 0: position t sees only positions > t - window (Beltagy et al., arXiv:2004.05150); requires `causal`
  // The int32 position of each key within its document, for sequences that hold several documents. Undefined if each sequence is one
  // document. Requires `causal`.
  Tensor positions_BT;
};

/// Returns the attention output [B,T,H,Dv] of q[B,T,H,D], k[B,T,Hkv,D] and v[B,T,Hkv,Dv] with Dv <= D. If Dv < D, as in latent attention
/// (DeepSeek-V2, arXiv:2405.04434), v is padded with zeros, so it takes the time and memory of Dv = D. Query head h uses key/value head h /
/// (H / Hkv). k and v may have more positions than q (generation with a key/value cache). With `causal`, the last query then sees all keys,
/// the query before it all keys but the last, and so on. sinks_H holds a logit of each head that takes part in each softmax without a key
/// (the sinks of gpt-oss), in the dtype of q; there are none if it is undefined.
Variable attention(const Variable& q, const Variable& k, const Variable& v, const AttentionOptions& options, const Variable& sinks_H = {});

/// Computes attention with GPT-2's layout of the inputs: qkv[B, T, 3*H*D] holds q, k and v
/// side by side. Returns [B, T, H*D]. Backward writes one gradient tensor for all three.
Variable attention_packed(const Variable& qkv, i64 heads, const AttentionOptions& options);

}  // namespace spillway::ops
