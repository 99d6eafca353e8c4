// Text from a model, token by token. With a key/value cache (PlanRequest::cache_positions) several rows at once: a prompt in passes of as
// many positions as the plan has, then one position a pass, each of which reads every weight once for all rows. Rows are filled up in
// front: the filling is a document of its own. Without a cache, while training, one row, whose window is computed anew for each token.
// The same seed gives the same text on any placement. One thread.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "app/text/sampling.h"
#include "parallel/run/rank.h"

namespace spillway::app {

/// Throws Error(usage) that begins with `where` on an empty prompt, and on one with ids at or above the vocabulary.
void check_prompt(const std::vector<i32>& tokens, i64 vocabulary, const std::string& where = "[generate]");

/// What a plan needs to generate up to `max_tokens` after prompts of up to `prompt` tokens with a model of so many positions.
struct TextLengths {
  i64 pass = 1;   // positions at once: a Workload's sequence_length
  i64 cache = 1;  // and its cache_positions
};
TextLengths text_lengths(i64 prompt, i64 max_tokens, i64 positions);

struct TextRow {
  std::vector<i32> tokens;  // at least one
  Sampling sampling;
};

/// Continues the rows by up to `max_tokens` each. `emit` sees each new token with its row and returns false to end that row. Of a text that
/// grows longer than the model's positions or the cache, the older half falls out. No more rows than the plan's micro_batch_size, of a
/// plan without a cache one. All ranks call it together, with the same arguments, and get the same tokens.
void generate_tokens(parallel::Rank& rank, std::vector<TextRow> rows, i64 max_tokens, i64 positions,
                     const std::function<bool(size_t row, i32 id)>& emit);

}  // namespace spillway::app
