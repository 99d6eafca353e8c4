#include "app/run/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/random.h"

namespace spillway::app {
namespace {

MicroBatch window(const parallel::Rank& rank, std::span<const i32> tokens) {
  const i64 T = rank.plan().sequence_length;
  const Shape shape{1, T};
  MicroBatch batch{.tokens_BT = zeros(shape, DType::int32, "tokens"),
                   .targets_BT = empty(shape, DType::int32, "targets"),
                   .positions_BT = empty(shape, DType::int32, "positions")};
  std::copy(tokens.begin(), tokens.end(), batch.tokens_BT.data<i32>());
  std::ranges::fill(batch.targets_BT.span<i32>(), kIgnoredTarget);
  std::iota(batch.positions_BT.data<i32>(), batch.positions_BT.data<i32>() + T, 0);
  return batch;
}

// Ids from the likeliest on, cut to top_k and to the smallest set that holds top_p.
std::vector<std::pair<double, i32>> shortlist(const std::vector<double>& logits, const Sampling& s) {
  std::vector<std::pair<double, i32>> ranked;
  const double top = *std::max_element(logits.begin(), logits.end());
  for (size_t i = 0; i < logits.size(); ++i) ranked.emplace_back(std::exp((logits[i] - top) / s.temperature), static_cast<i32>(i));
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  if (s.top_k > 0) ranked.resize(std::min(ranked.size(), static_cast<size_t>(s.top_k)));
  double total = 0, held = 0;
  for (const auto& r : ranked) total += r.first;
  size_t kept = 0;
  while (kept < ranked.size() && (kept == 0 || held < s.top_p * total)) held += ranked[kept++].first;
  ranked.resize(kept);
  return ranked;
}

}  // namespace

i32 sample_token(const std::vector<double>& logits, const Sampling& s, i64 position) {
  if (s.temperature == 0) return static_cast<i32>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  const auto list = shortlist(logits, s);
  double total = 0;
  for (const auto& r : list) total += r.first;
  double left = uniform(RandomKey{s.seed}.derive("sample"), 0, static_cast<u64>(position)) * total;
  for (const auto& [weight, id] : list) {
    left -= weight;
    if (left < 0) return id;
  }
  return list.back().second;
}

void check_prompt(const std::vector<i32>& tokens, i64 vocabulary) {
  if (tokens.empty()) throw Error(ErrorCode::usage, "[generate] expected a prompt of at least one token: give --prompt TEXT");
  const auto beyond = std::ranges::find_if(tokens, [&](i32 id) { return id >= vocabulary; });
  if (beyond != tokens.end())
    throw Error(ErrorCode::usage,
                fmt::format("[generate] the prompt's byte {} is beyond the model's vocabulary of {}", *beyond, vocabulary));
}

void generate_tokens(parallel::Rank& rank, std::vector<i32> tokens, i64 max_tokens, const Sampling& sampling,
                     const std::function<bool(i32)>& emit) {
  require(!tokens.empty(), "[generate] a prompt of at least one token");
  const i64 T = rank.plan().sequence_length;
  const StreamScope scope(rank.input_stream());
  for (i64 n = 0; n < max_tokens; ++n) {
    const i64 count = std::min(T, static_cast<i64>(tokens.size()));
    const MicroBatch batch = window(rank, std::span(tokens).last(static_cast<size_t>(count)));
    tokens.push_back(sample_token(rank.logits(batch, count - 1), sampling, n));
    if (!emit(tokens.back())) return;
  }
}

}  // namespace spillway::app
