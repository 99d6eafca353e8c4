// States how the blocks of a model are divided among pipeline ranks, and in which order each rank computes. A Pipeline is the
// setting; Stages are what follows from it: the stages and the schedule. A stage is a sequence of neighbouring blocks; a rank holds
// one or several stages (chunks). A single rank with a single stage is a pipeline too. Pure functions and plain values.
#pragma once
#include <memory>

#include "parallel/schedule/schedule_generate.h"

namespace spillway::parallel {

/// Names the order of computing. micro_batch: each micro-batch goes through all blocks before the next micro-batch starts. vertical: all
/// micro-batches go through a block before the next block starts, so that offloaded weights and accumulators are moved only once per step.
enum class Order : u8 { micro_batch, vertical };

struct Pipeline {
  int rank = 0, ranks = 1;
  ScheduleKind kind = ScheduleKind::one_forward_one_backward;
  i64 chunks = 1;                         // number of stages that a rank holds
  std::vector<u16> begins;                // first block of each stage; if empty, all stages get equal numbers of blocks
  std::shared_ptr<const Schedule> table;  // a schedule that was read from a file and may be run; if set, it is used instead of `kind`
};

struct Stages {
  Schedule schedule;         // the schedule, without idle slots
  std::vector<u16> begins;   // first block of each stage, followed by the number of blocks of the model
  std::vector<u16> rank_of;  // the rank that holds each block

  u16 first(u16 stage) const { return begins[stage]; }
  u16 end(u16 stage) const { return begins[stage + 1u]; }
};

/// Returns the stages of a pipeline and their schedule. If `vertical`, the schedule is breadth-first, whatever the kind, and each block is
/// a stage. Throws Error(usage) if there are fewer blocks than stages, if the first blocks of stages do not ascend from 0, or if the table
/// is for another number of ranks or micro-batches.
Stages make_stages(const Pipeline& pipeline, bool vertical, i64 micro_batches, u16 blocks);

}  // namespace spillway::parallel
