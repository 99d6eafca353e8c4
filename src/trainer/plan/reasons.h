// Describes the choices of a plan for the user, one line each: the tiers, the activations,
// the logits, the order of micro-batches, the optimizer, and what is prefetched.
#pragma once
#include <string>
#include <vector>

#include "parallel/plan/plan.h"

namespace spillway::trainer {

std::vector<std::string> reasons(const parallel::Plan& plan);
/// Returns the line about the logits, for a rank that holds the last block. The
/// result is empty if the backward of that block never computes the logits again.
std::string logits_text(const parallel::Plan& plan);

}  // namespace spillway::trainer
