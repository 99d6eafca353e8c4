// Generates text with a model, token by token. With a key/value cache (PlanRequest::cache_positions) the code continues several texts (the
// rows of a batch) at once. First the prompts are computed, in passes of as many positions as the plan allows, then one position in each
// pass. A pass reads every weight once for all rows. Shorter rows are padded in front; the attention mask treats the padding as a separate
// document, so no token attends to it. Without a cache, as for samples during training, a single row is continued, and all positions are
// recomputed for each new token. The same seed gives the same text, whichever tiers store the weights. Not thread-safe.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "parallel/run/rank.h"
#include "trainer/text/sampling.h"

namespace spillway::trainer {

/// Throws Error(usage) if a prompt is empty or has token ids at or above `vocabulary`. The message begins with `where`.
void check_prompt(const std::vector<i32>& tokens, i64 vocabulary, const std::string& where = "[generate]");

/// TextLengths holds the numbers of positions for which a plan must have memory to generate text. text_lengths() computes
/// them for prompts of up to `prompt` tokens, up to `max_tokens` new tokens, and a model with `positions` positions.
struct TextLengths {
  i64 pass = 1;   // most positions of a pass, the sequence_length of a Workload
  i64 cache = 1;  // positions of the key/value cache, the cache_positions of a Workload
};
TextLengths text_lengths(i64 prompt, i64 max_tokens, i64 positions);

struct TextRow {
  std::vector<i32> tokens;  // the text so far; at least one token
  Sampling sampling;
};

/// Collective. Continues each row by up to `max_tokens` tokens. `emit` is called with each new token and its
/// row, and returns false to end that row. If a text grows longer than the model's `positions` or the cache,
/// the model no longer sees the older half of the text. There may be at most as many rows as the plan's
/// micro_batch_size; without a cache only one. All ranks pass the same arguments and get the same tokens.
void generate_tokens(parallel::Rank& rank, std::vector<TextRow> rows, i64 max_tokens, i64 positions,
                     const std::function<bool(size_t row, i32 id)>& emit);

}  // namespace spillway::trainer
