#include "app/commands/choice_scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"

namespace spillway::app {
namespace {

// Makes a batch of one row in which only the tokens after the prompt contribute to the loss.
MicroBatch batch_of(const ChoiceTokens& choice, i64 positions) {
  const Shape shape{1, positions};
  MicroBatch batch{.tokens_BT = zeros(shape, DType::int32, "tokens"),
                   .targets_BT = empty(shape, DType::int32, "targets"),
                   .positions_BT = empty(shape, DType::int32, "positions")};
  const i64 count = std::ssize(choice.tokens);
  std::copy_n(choice.tokens.begin(), count - 1, batch.tokens_BT.data<i32>());
  std::ranges::fill(batch.targets_BT.span<i32>(), kIgnoredTarget);
  std::copy(choice.tokens.begin() + choice.begin, choice.tokens.end(), batch.targets_BT.data<i32>() + choice.begin - 1);
  std::iota(batch.positions_BT.data<i32>(), batch.positions_BT.data<i32>() + positions, 0);
  batch.counted_targets = count - choice.begin;
  return batch;
}

size_t largest(const std::vector<double>& values) { return static_cast<size_t>(std::ranges::max_element(values) - values.begin()); }

}  // namespace

double standard_error(i64 right, i64 rows) {
  if (rows < 2) return 0;
  const double share = static_cast<double>(right) / static_cast<double>(rows);
  return std::sqrt(share * (1 - share) / static_cast<double>(rows - 1));
}

i64 longest_choice(const std::vector<ChoiceRow>& rows) {
  i64 longest = 0;
  for (const ChoiceRow& row : rows) {
    for (const ChoiceTokens& choice : row.choices) longest = std::max(longest, std::ssize(choice.tokens) - 1);
  }
  return longest;
}

ChoiceScores score_choices(parallel::Rank& rank, const parallel::Mesh& mesh, const Peers& peers, const std::vector<ChoiceRow>& rows,
                           i64 positions, const std::function<void(i64 done, i64 all)>& so_far) {
  std::vector<const ChoiceTokens*> all;
  for (const ChoiceRow& row : rows) {
    for (const ChoiceTokens& choice : row.choices) all.push_back(&choice);
  }
  const StreamScope scope(rank.input_stream());
  const auto here = static_cast<size_t>(mesh.data_rank(peers.rank())), ranks = static_cast<size_t>(mesh.data);
  std::vector<double> likelihoods;  // log-likelihoods of the choices
  while (likelihoods.size() < all.size()) {
    const size_t next = likelihoods.size();  // a rank with no choice left repeats choice 0, since all ranks must enter the collectives
    const MicroBatch batch = batch_of(*all[next + here < all.size() ? next + here : 0], positions);
    const std::vector<std::vector<double>> losses = peers.gather(std::vector<double>{rank.evaluate(batch)});
    for (size_t r = 0; r < ranks && likelihoods.size() < all.size(); ++r)
      likelihoods.push_back(-losses[static_cast<size_t>(mesh.world_rank(static_cast<int>(r), 0))][0]);
    so_far(std::ssize(likelihoods), std::ssize(all));
  }
  ChoiceScores scores{std::ssize(rows), std::ssize(all)};
  auto at = likelihoods.begin();
  for (const ChoiceRow& row : rows) {
    if (!std::all_of(at, at + std::ssize(row.choices), [](double x) { return std::isfinite(x); }))
      throw Error(ErrorCode::numbers, row.where + " expected finite likelihoods, got NaN or infinity: did the model's training diverge?");
    std::vector<double> whole(at, at + std::ssize(row.choices)), by_bytes;
    at += std::ssize(row.choices);
    for (size_t i = 0; i < whole.size(); ++i) by_bytes.push_back(whole[i] / static_cast<double>(row.choices[i].bytes));
    scores.right += largest(whole) == row.answer;
    scores.right_by_bytes += largest(by_bytes) == row.answer;
  }
  return scores;
}

std::string text_of(const ChoiceScores& s, const ChoiceRows& rows, bool json) {
  const auto share = [&](i64 right) { return static_cast<double>(right) / static_cast<double>(s.rows); };
  if (json)
    return nlohmann::ordered_json{{"accuracy", share(s.right)},
                                  {"accuracy_stderr", standard_error(s.right, s.rows)},
                                  {"accuracy_normalized", share(s.right_by_bytes)},
                                  {"accuracy_normalized_stderr", standard_error(s.right_by_bytes, s.rows)},
                                  {"rows", s.rows},
                                  {"choices", s.choices},
                                  {"cut_prompts", rows.cut_prompts},
                                  {"bad_lines", rows.bad_lines}}
        .dump();
  return fmt::format("accuracy {:.4f} ± {:.4f}, normalized by bytes {:.4f} ± {:.4f}, {} rows with {} choices in all", share(s.right),
                     standard_error(s.right, s.rows), share(s.right_by_bytes), standard_error(s.right_by_bytes, s.rows), s.rows, s.choices);
}

}  // namespace spillway::app
