// Collects what a session's plan predicts for a run: memory, traffic and
// step time. The run's folder stores the result, and `plan --html` shows it.
#pragma once
#include "trainer/record/run_plan.h"
#include "trainer/run/session.h"

namespace spillway::trainer {

RunPlan record_of(Session& session, i64 ranks, i64 tokens_per_step, i64 began_at_step);

}  // namespace spillway::trainer
