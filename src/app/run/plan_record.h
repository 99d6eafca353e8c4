// Describes what a session's plan promises, in the form that a run's folder records and `plan --html` shows.
#pragma once
#include "app/record/run_plan.h"
#include "app/run/session.h"

namespace spillway::app {

RunPlan record_of(Session& session, i64 ranks, i64 tokens_per_step, i64 began_at_step);

}  // namespace spillway::app
