// Whether Rank::visit shows what was trained.
#pragma once
#include "tests/parallel/run/support_run.h"

namespace spillway::test {

/// Trains, and expects that the ranks together have shown every weight of each trained parameter once: the values of the state's masters,
/// rounded to the weights' type (f32 or bf16).
void expect_all_shown(RunOptions options);

}  // namespace spillway::test
