// What a plan has chosen, in words: a line each for the tiers, the activations, the logits, the order, the optimizer and what is fetched
// ahead.
#pragma once
#include <string>
#include <vector>

#include "parallel/plan/plan.h"

namespace spillway::app {

std::vector<std::string> reasons(const parallel::Plan& plan);
/// The line of these of a rank that holds the last block; empty where it never makes logits again.
std::string logits_text(const parallel::Plan& plan);

}  // namespace spillway::app
