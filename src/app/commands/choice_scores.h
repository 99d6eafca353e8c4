// How often a model finds the right one of several choices the likeliest, behind its prompt. All ranks together; the same bits on any
// number of them, wherever weights lie.
#pragma once
#include <functional>
#include <string>

#include "app/commands/choice_rows.h"
#include "app/ranks/peers.h"
#include "parallel/comm/rank_mesh.h"
#include "parallel/run/rank.h"

namespace spillway::app {

struct ChoiceScores {
  i64 rows = 0, choices = 0;
  i64 right = 0;           // rows whose answer has the largest likelihood, the first of equal ones
  i64 right_by_bytes = 0;  // the largest logarithm of it by byte of the choice's text
};

/// The standard error of a share of so many rows; 0 of one row.
double standard_error(i64 right, i64 rows);

/// Positions that the longest choice and its prompt take.
i64 longest_choice(const std::vector<ChoiceRow>& rows);

/// `rank` is planned for one row of `positions`. `so_far` hears how many choices are done. Error(numbers) names the row of a likelihood
/// that is not finite.
ChoiceScores score_choices(parallel::Rank& rank, const parallel::Mesh& mesh, const Peers& peers, const std::vector<ChoiceRow>& rows,
                           i64 positions, const std::function<void(i64 done, i64 all)>& so_far);

/// "accuracy 0.5000 ± 0.0500, by bytes …", or JSON.
std::string text_of(const ChoiceScores& scores, const ChoiceRows& rows, bool json);

}  // namespace spillway::app
