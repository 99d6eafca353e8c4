// Generates one rank's Programs (lists of instructions for a step) from the layout, the placement (tier of each kind of data) and the
// scheduling. Pure functions: the same input gives the same lists. Data is prefetched by a Fetch instruction that is placed `prefetch` runs
// before the run that uses the data (computing_order.h). This code also plans the memory for data in motion: it finds the offset of every
// slot (the memory of one operand) with an Arena.
#pragma once
#include "parallel/layout/placement.h"
#include "parallel/program/program.h"

namespace spillway::parallel {

/// Returns the Program of a training step: every micro-batch goes forward and backward through all blocks; then follow AgreeNorm and the
/// optimizer's instructions.
Program generate_training(const Layout& layout, const Placement& placement, const Scheduling& scheduling);

/// Returns a Program of one list only: one micro-batch goes forward through all blocks (for validation and generation).
Program generate_forward(const Layout& layout, const Placement& placement, const Scheduling& scheduling);

}  // namespace spillway::parallel
