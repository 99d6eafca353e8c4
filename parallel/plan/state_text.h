// Makes the label of the optimizer state in the memory table of a plan.
#pragma once
#include <string>

#include "optim/state_format.h"

namespace spillway::parallel {

/// Returns for example "optimizer state (master, m, v)". For Muon it adds the arrays of the parameters that AdamW steps, "(momentum or m,
/// v)"; for Adafactor it says "(v or its means)".
std::string state_text(const optim::StateFormat& format);

}  // namespace spillway::parallel
