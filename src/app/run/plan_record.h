// Collects what a session's plan predicts for a run: memory, traffic and
// step time. The run's folder stores the result, and `plan --html` shows it.
#pragma once
#include "app/record/run_plan.h"
#include "app/run/session.h"

namespace spillway::app {

RunPlan record_of(Session& session, i64 ranks, i64 tokens_per_step, i64 began_at_step);

}  // namespace spillway::app
