// Text from a model, token by token: each step runs the forward Program over one padded window and draws from the last position's logits.
// The same seed gives the same text on any placement. One thread.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "parallel/run/rank.h"

namespace spillway::app {

struct Sampling {
  double temperature = 0.8;  // 0: the likeliest token
  i64 top_k = 0;             // 0: all
  double top_p = 1;
  u64 seed = 1337;
};

/// Index drawn from `logits` for the `position`-th token.
i32 sample_token(const std::vector<double>& logits, const Sampling& sampling, i64 position);

/// Throws Error(usage) on an empty prompt, and on one with ids at or above the vocabulary.
void check_prompt(const std::vector<i32>& tokens, i64 vocabulary);

/// Continues `tokens`, at least one, by up to `max_tokens`; windows are the plan's sequence length (older tokens fall out). `emit` sees
/// each new token and returns false to stop. All ranks call it together, with the same arguments, and get the same tokens.
void generate_tokens(parallel::Rank& rank, std::vector<i32> tokens, i64 max_tokens, const Sampling& sampling,
                     const std::function<bool(i32)>& emit);

}  // namespace spillway::app
