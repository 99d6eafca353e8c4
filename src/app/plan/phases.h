// The phases of a step, as metrics.jsonl has them (phase_ms), from times that were measured or simulated. Pure functions.
#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "app/node/disk_meter.h"
#include "parallel/proof/account.h"

namespace spillway::app {

using Phases = std::map<std::string, double>;  // milliseconds

/// All that there may be.
std::vector<std::string> phase_names();

/// What an instruction's time counts as; null: as nothing.
const char* phase_of(parallel::Op op);

/// Busy time by what it was spent on: forward, backward, backward_weight (where that is a part of its own), reduce, exchange (with other
/// ranks, waiting for them too), fetch, evict, data, optimizer; and the list's as a whole under `whole`.
void add_phases(Phases& phases, const parallel::List& list, std::span<const parallel::Timing> timings, const char* whole);
/// lane_compute …, how long each lane was busy; wait_load …, how long the compute lane stood still for it; bound_compute …, what the
/// step's longest chain of waiting went to.
void add_lanes(Phases& phases, const parallel::Account& account);
/// disk, disk_read, disk_write: while something, a read, a write was under way.
void add_disk(Phases& phases, const DiskUse& use);

}  // namespace spillway::app
