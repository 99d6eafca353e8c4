// Computes the phases of a step, as metrics.jsonl reports them (phase_ms), from measured or simulated times. Pure functions.
#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "parallel/proof/account.h"
#include "trainer/node/disk_meter.h"

namespace spillway::trainer {

using Phases = std::map<std::string, double>;  // milliseconds by name

/// Returns the names of all phases there can be.
std::vector<std::string> phase_names();

/// Returns the name of the phase to which the time of an instruction is added; null if there is none.
const char* phase_of(parallel::Op op);

/// Adds the busy time of each phase: forward, backward, backward_weight (if the schedule computes the weights' gradients separately),
/// reduce, exchange (with other ranks, including waits), fetch, evict, data and optimizer. Adds the time of the whole list under the name
/// `whole`.
void add_phases(Phases& phases, const parallel::List& list, std::span<const parallel::Timing> timings, const char* whole);
/// Adds three families of phases: lane_compute …, how long each lane was busy; wait_load …, how long the compute lane waited for each other
/// lane; and bound_compute …, how the step's critical path divides among the resources.
void add_lanes(Phases& phases, const parallel::Account& account);
/// Adds disk, disk_read and disk_write: how long any transfer, a read, or a write was under way.
void add_disk(Phases& phases, const DiskUse& use);

}  // namespace spillway::trainer
