#include "trainer/text/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace spillway::trainer {
namespace {

using Emit = std::function<bool(size_t row, i32 id)>;

// most positions of a pass over a prompt; a longer pass takes more time to compute than to read the weights
constexpr i64 kMostAtOnce = 256;

MicroBatch empty_batch(i64 rows, i64 positions) {
  const Shape shape{rows, positions};
  MicroBatch batch{.tokens_BT = zeros(shape, DType::int32, "tokens"),
                   .targets_BT = empty(shape, DType::int32, "targets"),
                   .positions_BT = zeros(shape, DType::int32, "positions")};
  std::ranges::fill(batch.targets_BT.span<i32>(), kIgnoredTarget);
  return batch;
}

// Returns the logits after the last of `tokens`, computed without a cache. The model reads at most as many of the last tokens as the plan
// has positions.
std::vector<double> logits_of_window(parallel::Rank& rank, std::span<const i32> tokens) {
  const i64 T = rank.plan().sequence_length, count = std::min(T, std::ssize(tokens));
  const MicroBatch batch = empty_batch(1, T);
  std::ranges::copy(tokens.last(static_cast<size_t>(count)), batch.tokens_BT.data<i32>());
  std::iota(batch.positions_BT.data<i32>(), batch.positions_BT.data<i32>() + T, 0);
  return rank.logits(batch, count - 1);
}

// CachedRows holds the keys and values of several texts, one per row of the cache. The rows are aligned at their ends, so shorter rows
// have padding in front. Row b has padding at positions below front_[b]. From front_[b] on, position p holds the row's token with index
// first_[b] + p - front_[b].
class CachedRows {
 public:
  CachedRows(parallel::Rank& rank, std::vector<TextRow>& rows, i64 positions)
      : rank_(rank), rows_(rows), positions_(positions), front_(rows.size()), first_(rows.size()) {}

  // Returns the logits [B, V] of all B rows after their last tokens.
  std::vector<double> next_logits() {
    if (filled_ == 0) return fill(longest() < positions_ ? longest() : half());
    const bool full = filled_ == rank_.plan().cache_positions || filled_ - std::ranges::min(front_) == positions_;
    return full ? fill(half()) : pass(1);
  }

 private:
  i64 longest() const {
    return std::ranges::max(rows_, {}, [](const TextRow& row) { return row.tokens.size(); }).tokens.size();
  }
  i64 half() const { return std::max<i64>(1, std::min(positions_, rank_.plan().cache_positions) / 2); }

  // Fills the cache anew with the last `most` tokens of each row. If the number of tokens is no multiple of the full pass length,
  // a shorter pass comes first, padded to a length for which the plan has memory. Returns the logits after the last tokens.
  std::vector<double> fill(i64 most) {
    const i64 whole = rank_.plan().sequence_length, kept = std::min(most, longest()), rest = kept % whole;
    const std::vector<i64> lengths = parallel::pass_lengths(whole);
    const i64 begin = rest > 0 ? *std::ranges::lower_bound(lengths, rest) : 0, all = kept / whole * whole + begin;
    for (size_t b = 0; b < rows_.size(); ++b) {
      const i64 tokens = std::ssize(rows_[b].tokens), here = std::min(kept, tokens);
      front_[b] = all - here;
      first_[b] = tokens - here;
    }
    filled_ = 0;
    std::vector<double> logits;
    if (begin > 0) logits = pass(begin);
    while (filled_ < all) logits = pass(whole);
    return logits;
  }

  std::vector<double> pass(i64 count) {
    const i64 end = filled_ + count;
    MicroBatch batch = empty_batch(std::ssize(rows_), count);
    for (size_t b = 0; b < rows_.size(); ++b) {
      i32* tokens = batch.tokens_BT.data<i32>() + static_cast<i64>(b) * count;
      i32* places = batch.positions_BT.data<i32>() + static_cast<i64>(b) * count;
      for (i64 p = std::max(filled_, front_[b]); p < end; ++p) {
        tokens[p - filled_] = rows_[b].tokens[static_cast<size_t>(first_[b] + p - front_[b])];
        places[p - filled_] = static_cast<i32>(p - front_[b]);
      }
    }
    if (std::ranges::max(front_) > 0) place_keys(batch, end);
    const i64 begin = filled_;
    filled_ = end;
    return rank_.next_logits(batch, begin);
  }

  void place_keys(MicroBatch& batch, i64 end) const {
    batch.packed = true;
    batch.key_positions_BT = empty({std::ssize(rows_), end}, DType::int32, "positions of keys");
    for (size_t b = 0; b < rows_.size(); ++b) {
      i32* places = batch.key_positions_BT.data<i32>() + static_cast<i64>(b) * end;
      std::iota(places, places + front_[b], 0);
      std::iota(places + front_[b], places + end, 0);
    }
  }

  parallel::Rank& rank_;
  std::vector<TextRow>& rows_;
  const i64 positions_;
  std::vector<i64> front_, first_;
  i64 filled_ = 0;  // number of positions filled in the cache
};

void generate_with_cache(parallel::Rank& rank, std::vector<TextRow> rows, i64 max_tokens, i64 positions, const Emit& emit) {
  const size_t asked = rows.size();
  rows.resize(static_cast<size_t>(rank.plan().micro_batch_size), {.tokens = {0}, .sampling = {}});
  std::vector<bool> goes_on(rows.size(), false);
  std::fill_n(goes_on.begin(), asked, true);
  CachedRows cached(rank, rows, positions);
  for (i64 n = 0; n < max_tokens && std::ranges::find(goes_on, true) != goes_on.end(); ++n) {
    const std::vector<double> logits = cached.next_logits();
    const size_t vocabulary = logits.size() / rows.size();
    for (size_t b = 0; b < rows.size(); ++b) {
      TextRow& row = rows[b];
      const auto of_row = std::span(logits).subspan(b * vocabulary, vocabulary);
      row.tokens.push_back(goes_on[b] ? sample_token(of_row, row.tokens, row.sampling, n) : row.tokens.back());
      if (goes_on[b]) goes_on[b] = emit(b, row.tokens.back());
    }
  }
}

}  // namespace

void check_prompt(const std::vector<i32>& tokens, i64 vocabulary, const std::string& where) {
  if (tokens.empty()) throw Error(ErrorCode::usage, where + " expected a prompt of at least one token, got none");
  const auto beyond = std::ranges::find_if(tokens, [&](i32 id) { return id >= vocabulary; });
  if (beyond != tokens.end())
    throw Error(
        ErrorCode::usage,
        fmt::format("{} expected token ids below the model's vocabulary of {}, the prompt has {}: the tokenizer belongs to another model",
                    where, vocabulary, *beyond));
}

// All passes over a prompt are as equal as possible, so that little is padded. No pass is longer than half the
// model's positions, because the newer half of a text must fit into the cache again when the cache is full.
TextLengths text_lengths(i64 prompt, i64 max_tokens, i64 positions) {
  const i64 half = std::max<i64>(1, positions / 2);
  const i64 kept = prompt < positions ? prompt : half, most = std::min(kMostAtOnce, half);
  const i64 pass = ceil_div(kept, ceil_div(kept, most));
  return {pass, std::min(positions, kept + max_tokens - 1) + pass};
}

void generate_tokens(parallel::Rank& rank, std::vector<TextRow> rows, i64 max_tokens, i64 positions, const Emit& emit) {
  const bool cached = rank.plan().cache_positions > 0;
  require(!rows.empty() && std::ssize(rows) <= (cached ? rank.plan().micro_batch_size : 1),
          "[generate] expected at least one row, and at most as many as the plan has");
  for (const TextRow& row : rows) require(!row.tokens.empty(), "[generate] expected a prompt of at least one token");
  const StreamScope scope(rank.input_stream());
  if (cached) return generate_with_cache(rank, std::move(rows), max_tokens, positions, emit);
  TextRow& row = rows.front();
  for (i64 n = 0; n < max_tokens; ++n) {
    row.tokens.push_back(sample_token(logits_of_window(rank, row.tokens), row.tokens, row.sampling, n));
    if (!emit(0, row.tokens.back())) return;
  }
}

}  // namespace spillway::trainer
