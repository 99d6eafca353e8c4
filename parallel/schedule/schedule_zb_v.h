// Generates one rank's row of the ZB-V schedule, for schedule_generate.h. Pure function; thread-safe.
#pragma once
#include "parallel/schedule/schedule.h"

namespace spillway::parallel {

/// Returns the row of rank r = `rank` of P = `ranks` ranks. Rank r holds stage r on the way down the V and stage 2P - 1 - r on the way up.
/// The phases follow the V schedule in arXiv 2405.15362 for equal F, I and W. First micro-batches go down the V until micro-batch 0 comes
/// back up. Then the pipeline is filled. Then F, I and W of both legs alternate. At the end, the input gradients for which other ranks wait
/// come first. The row is built for M >= 2P - 1 micro-batches. For a smaller M it is the row for 2P - 1 without the missing micro-batches.
ScheduleRow zb_v_row(i64 ranks, i64 micro_batches, i64 rank);

}  // namespace spillway::parallel
