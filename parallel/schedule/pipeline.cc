#include "parallel/schedule/pipeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace spillway::parallel {
namespace {

// Makes a breadth-first schedule in which each block is a stage. The last round-robin round may contain stages beyond the last block; these
// are removed.
Schedule vertical_schedule(const Pipeline& p, i64 micro_batches, u16 blocks) {
  Schedule s = generate_schedule(ScheduleKind::vertical, {p.ranks, micro_batches, (blocks + p.ranks - 1) / p.ranks});
  s.rank_of.resize(blocks);
  for (ScheduleRow& row : s.rows) std::erase_if(row, [&](const Action& a) { return a.stage >= blocks; });
  return s;
}

Schedule schedule_of(const Pipeline& p, bool vertical, i64 micro_batches, u16 blocks) {
  if (vertical) return vertical_schedule(p, micro_batches, blocks);
  if (!p.table) return generate_schedule(p.kind, {p.ranks, micro_batches, p.chunks});
  if (p.table->ranks() != p.ranks || p.table->micro_batches != micro_batches) {
    throw Error(ErrorCode::usage,
                fmt::format("[pipeline] {} is for {} ranks and {} micro-batches, but the run has {} ranks and {} micro-batches: "
                            "change these numbers of the run or choose another schedule",
                            p.table->name, p.table->ranks(), p.table->micro_batches, p.ranks, micro_batches));
  }
  return without_idle(*p.table);
}

std::vector<u16> begins_of(const Pipeline& p, bool vertical, i32 stages, u16 blocks) {
  if (stages > blocks)
    throw Error(ErrorCode::usage,
                fmt::format("[pipeline] expected at least one block for each of {} stages, got {} blocks: choose fewer stages or chunks",
                            stages, blocks));
  std::vector<u16> begins = p.begins;
  if (begins.empty() || vertical) {
    begins.clear();
    for (i64 s = 0; s < stages; ++s) begins.push_back(static_cast<u16>(s * blocks / stages));
  }
  begins.push_back(blocks);
  const bool ascend = std::adjacent_find(begins.begin(), begins.end(), std::greater_equal<>()) == begins.end();
  if (std::ssize(begins) != stages + 1 || begins.front() != 0 || !ascend)
    throw Error(ErrorCode::usage,
                fmt::format("[pipeline] expected the first block of each of {} stages, ascending from 0 and below {}, got {}", stages,
                            blocks, fmt::join(p.begins, ",")));
  return begins;
}

}  // namespace

Stages make_stages(const Pipeline& pipeline, bool vertical, i64 micro_batches, u16 blocks) {
  Stages all{schedule_of(pipeline, vertical, micro_batches, blocks), {}, {}};
  all.begins = begins_of(pipeline, vertical, all.schedule.stages(), blocks);
  for (u16 s = 0; s + 1u < all.begins.size(); ++s)
    all.rank_of.insert(all.rank_of.end(), all.end(s) - all.first(s), all.schedule.rank_of[s]);
  return all;
}

}  // namespace spillway::parallel
