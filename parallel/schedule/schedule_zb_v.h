// Generates one rank's row of the ZB-V schedule, for schedule_generate.h. Pure function; thread-safe.
#pragma once
#include "parallel/schedule/schedule.h"

namespace spillway::parallel {

/// Returns the row. Rank r of P holds stage r ("down") and stage 2P - 1 - r ("up"). The phases are those of the V schedule in arXiv
/// 2405.15362 for equal F, I and W: go down the V until micro-batch 0 comes back up, fill the pipeline, then run F, I and W of both legs in
/// turn, and at the end first the input gradients for which other ranks wait. The row is built for M >= 2P - 1; for smaller M it is the row
/// of 2P - 1 without the missing micro-batches.
ScheduleRow zb_v_row(i64 ranks, i64 micro_batches, i64 rank);

}  // namespace spillway::parallel
