// Makes the label for the optimizer state in a plan's memory table.
#pragma once
#include <string>

#include "optim/state_format.h"

namespace spillway::parallel {

/// Returns the label of the optimizer state, for example "optimizer state (master, m, v)". For Muon it also names the arrays of those
/// parameters that AdamW steps: "(momentum or m, v)". For Adafactor it says "(v or its means)", since v is stored as means for some
/// parameters.
std::string state_text(const optim::StateFormat& format);

}  // namespace spillway::parallel
