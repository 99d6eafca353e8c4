// Computes how often a model gives the highest likelihood to the right one of several choices after a prompt.
// score_choices() is collective. The result has the same bits on any number of ranks, wherever the weights are stored.
#pragma once
#include <functional>
#include <string>

#include "app/commands/choice_rows.h"
#include "app/names/names.h"
#include "parallel/comm/rank_mesh.h"
#include "parallel/run/rank.h"
#include "trainer/ranks/peers.h"

namespace spillway::app {

struct ChoiceScores {
  i64 rows = 0, choices = 0;
  i64 right = 0;           // rows whose answer has the largest likelihood of all choices; of equal choices the first counts
  i64 right_by_bytes = 0;  // rows whose answer has the largest log-likelihood per byte of its text
};

/// Returns the standard error of the share right / rows. Returns 0 for a single row.
double standard_error(i64 right, i64 rows);

/// Returns the number of positions that the longest prompt takes together with its choice.
i64 longest_choice(const std::vector<ChoiceRow>& rows);

/// Scores all choices. The plan of `rank` must be for micro-batches of one row with `positions` tokens. `so_far` is called with the number
/// of choices scored and the number of all choices. Throws Error(numbers), which names the row, for a likelihood that is not finite.
ChoiceScores score_choices(parallel::Rank& rank, const parallel::Mesh& mesh, const Peers& peers, const std::vector<ChoiceRow>& rows,
                           i64 positions, const std::function<void(i64 done, i64 all)>& so_far);

/// Formats the scores as "accuracy 0.5000 ± 0.0500, normalized by bytes …", or as JSON.
std::string text_of(const ChoiceScores& scores, const ChoiceRows& rows, bool json);

}  // namespace spillway::app
