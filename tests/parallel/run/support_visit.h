// Checks that Rank::visit gives access to exactly the weights that were trained.
#pragma once
#include "tests/parallel/run/support_run.h"

namespace spillway::test {

/// Trains, and expects that the ranks together visit every weight of each trained parameter exactly once. The
/// values must be those of the state's masters, rounded to the weights' type (f32 or bf16).
void expect_all_shown(RunOptions options);

}  // namespace spillway::test
