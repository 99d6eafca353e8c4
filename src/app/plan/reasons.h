// What a plan has chosen, in words: a line each for the tiers, the activations, the order, the optimizer and what is fetched ahead.
#pragma once
#include <string>
#include <vector>

#include "parallel/plan/plan.h"

namespace spillway::app {

std::vector<std::string> reasons(const parallel::Plan& plan);

}  // namespace spillway::app
