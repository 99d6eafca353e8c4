#include "trainer/run/plan_record.h"

#include "trainer/plan/freeze.h"

namespace spillway::trainer {

RunPlan record_of(Session& session, i64 ranks, i64 tokens_per_step, i64 began_at_step) {
  const parallel::Plan& plan = session.chosen();
  const StepCost& cost = session.prediction().step(plan.train);
  RunPlan record;
  record.began_at_step = began_at_step;
  record.model = session.source().name;
  record.device = session.device().device.is_cuda() ? session.device().name : "cpu";
  record.parameters = session.model().parameter_elems();
  record.trained = record.parameters - frozen_elems(session.model());
  record.threads = session.threads();
  record.ranks = static_cast<int>(ranks);
  record.pipeline_stages = plan.scheduling.pipeline.ranks;
  record.zero_stage = plan.scheduling.sharding.stage;
  record.tokens_per_step = tokens_per_step;
  record.rows = plan.rows;
  record.total = plan.total;
  record.budget = session.budgets().bytes;
  record.process_bytes = session.prediction().process_bytes();
  record.moved = plan.moved_per_step();
  record.step_s = cost.seconds;
  record.bound_by = to_string(cost.account.bound_by());
  record.phase_ms = cost.phase_ms;
  record.choices = session.choices();
  record.levers = levers_of(plan, session.model(), session.prediction().rates(), static_cast<i64>(session.nvme().paths.size()));
  return record;
}

}  // namespace spillway::trainer
