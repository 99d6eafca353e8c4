// Scaled dot-product attention with memory linear in T (Dao et al., arXiv:2205.14135): forward keeps q, k, v, the output and one
// log-sum-exp for each (b, h, t); backward recomputes the probabilities tile by tile. Legend: B rows, T positions, H heads, Hkv key/value
// heads, D width.
#pragma once
#include "autograd/tape.h"
#include "base/random.h"
#include "kernels/attention/attention.h"

namespace spillway::ops {

using autograd::Variable;

struct AttentionOptions {
  double scale = 0;      // of the scores, usually 1/sqrt(D); 0 is refused
  bool causal = true;    // position t sees positions <= t
  double dropout = 0;    // share of probabilities dropped, in [0, 1)
  RandomKey key;         // of the dropout mask
  i64 first_sample = 0;  // number of row 0 over the whole run: the mask does not depend on how rows are cut into micro-batches
  kernels::AttentionLibrary library = kernels::AttentionLibrary::own;  // on a GPU
  double softcap = 0;   // above 0: scores are softcap * tanh(scale * q k / softcap) (Gemma 2, arXiv:2408.00118)
  i64 window = 0;       // above 0: position t sees positions > t - window (Beltagy et al., arXiv:2004.05150); causal alone
  Tensor positions_BT;  // of each key in its document (packed rows), int32; undefined: a row is one document; causal alone
};

/// q[B,T,H,D], k[B,T,Hkv,D], v[B,T,Hkv,D] -> [B,T,H,D]; query head h uses key/value head h / (H / Hkv). k and v may have more positions
/// than q (generation): the causal mask is then aligned at the last one.
Variable attention(const Variable& q, const Variable& k, const Variable& v, const AttentionOptions& options);

/// GPT-2's packed form: qkv[B, T, 3*H*D] holds the q, k and v thirds -> [B, T, H*D]. One gradient tensor is written for all three.
Variable attention_packed(const Variable& qkv, i64 heads, const AttentionOptions& options);

}  // namespace spillway::ops
