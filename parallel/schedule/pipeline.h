// How the blocks of a model are dealt to pipeline ranks, and in which order each of them computes: a setting, and the stages and the
// schedule that follow from it. A stage is a run of neighbouring blocks; a rank holds one or several (chunks). One rank with one stage is a
// pipeline too. Pure functions; values.
#pragma once
#include <memory>

#include "parallel/schedule/schedule_generate.h"

namespace spillway::parallel {

struct Pipeline {
  int rank = 0, ranks = 1;
  ScheduleKind kind = ScheduleKind::one_forward_one_backward;
  i64 chunks = 1;                         // stages a rank holds
  std::vector<u16> begins;                // by stage, its first block; empty: as many blocks for each
  std::shared_ptr<const Schedule> table;  // instead of the kind's: from a file, executable
};

struct Stages {
  Schedule schedule;         // without idle
  std::vector<u16> begins;   // by stage, its first block; then the number of blocks
  std::vector<u16> rank_of;  // by block

  u16 first(u16 stage) const { return begins[stage]; }
  u16 end(u16 stage) const { return begins[stage + 1u]; }
};

/// `vertical`: breadth first, whatever the kind; each block is a stage then. Throws Error(usage) where there are fewer blocks than stages,
/// begins that do not ascend from 0, or a table for other numbers.
Stages make_stages(const Pipeline& pipeline, bool vertical, i64 micro_batches, u16 blocks);

}  // namespace spillway::parallel
