// Generates one rank's Programs from layout, placement and scheduling. Pure functions: the same input gives the same lists. A prefetch is a
// Fetch that is placed `prefetch` blocks before its use. The memory for data in motion is planned here, offset by offset, with an Arena.
#pragma once
#include "parallel/layout/placement.h"
#include "parallel/program/program.h"

namespace spillway::parallel {

/// Returns the Program of a training step: every micro-batch goes forward through all blocks and backward, followed by AgreeNorm and the
/// optimizer's instructions.
Program generate_training(const Layout& layout, const Placement& placement, const Scheduling& scheduling);

/// Returns a Program that has only a head: one micro-batch goes forward through all blocks (validation, generation).
Program generate_forward(const Layout& layout, const Placement& placement, const Scheduling& scheduling);

}  // namespace spillway::parallel
