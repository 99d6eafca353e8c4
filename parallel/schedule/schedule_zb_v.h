// One rank's row of ZB-V, for schedule_generate.h. Pure function; thread-safe.
#pragma once
#include "parallel/schedule/schedule.h"

namespace spillway::parallel {

/// Rank r of P holds stage r ("down") and stage 2P - 1 - r ("up"). The phases are those of the V schedule in arXiv 2405.15362 for equal F,
/// I and W: down the V until micro-batch 0 comes back up, fill, then F I W of either leg in turn, and at the end the inputs that others
/// wait for first. It is built for M >= 2P - 1; for less, the row of 2P - 1 loses the micro-batches there are not.
ScheduleRow zb_v_row(i64 ranks, i64 micro_batches, i64 rank);

}  // namespace spillway::parallel
