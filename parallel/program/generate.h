// From (layout, placement, scheduling) to Programs for one rank. Pure functions: the same input gives the same lists. Prefetch is a
// Fetch from nvme placed `prefetch` blocks earlier; memory for what moves is planned here, offset by offset, with an Arena.
#pragma once
#include "parallel/layout/placement.h"
#include "parallel/program/program.h"

namespace spillway::parallel {

/// A training step: every micro-batch forward through all blocks and backward, then AgreeNorm; and what comes after that.
Program generate_training(const Layout& layout, const Placement& placement, const Scheduling& scheduling);

/// One micro-batch forward through all blocks (validation, generation): a head only.
Program generate_forward(const Layout& layout, const Placement& placement, const Scheduling& scheduling);

}  // namespace spillway::parallel
