// Turns the flags --pipeline-stages, --pipeline-schedule, --pipeline-split and --pipeline-chunks
// into a Pipeline. All functions are pure, except that a schedule may be read from a CSV file.
#pragma once
#include "parallel/schedule/pipeline.h"
#include "trainer/settings/config.h"

namespace spillway::trainer {

/// Returns the pipeline of rank 0 that the flags ask for, without the split of blocks over stages. Throws Error(usage) for an unknown
/// schedule (naming the nearest), a CSV table for another number of ranks, or flags that exclude each other, and Error(data) for a bad CSV
/// file.
parallel::Pipeline pipeline_of(const TrainConfig& config);
/// Checks that the ranks divide evenly among the stages. If they do not, throws Error(usage), which names the nearest legal number of
/// ranks.
void check_stages(const RanksConfig& config);
/// Returns whether the schedule is breadth-first: all micro-batches pass a block before the next block starts.
inline bool is_vertical(const TrainConfig& config) { return config.pipeline_schedule == "vertical"; }
/// Sets config.placement.order from the schedule and the number of stages. With one stage and no schedule the order stays unset, and the
/// planner chooses it.
void resolve_order(TrainConfig& config);

}  // namespace spillway::trainer
