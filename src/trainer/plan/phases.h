// Computes the phases of a step from measured or simulated times. metrics.jsonl reports them as phase_ms. All functions are pure.
#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "parallel/proof/account.h"
#include "trainer/node/disk_meter.h"

namespace spillway::trainer {

using Phases = std::map<std::string, double>;  // milliseconds by the name of the phase

/// Returns the names of all phases that a step can have.
std::vector<std::string> phase_names();

/// Returns the name of the phase to which the time of an instruction is added. Returns null for an instruction that belongs to no phase.
const char* phase_of(parallel::Op op);

/// Adds the busy time of each phase: forward, backward, backward_weight (if the schedule computes the
/// weights' gradients separately), reduce, exchange (with other ranks, including waits), fetch, evict,
/// data and optimizer. Also adds the time of the whole instruction list under the name `whole`.
void add_phases(Phases& phases, const parallel::List& list, std::span<const parallel::Timing> timings, const char* whole);
/// Adds three families of phases. Names that begin with lane_ say how long each executing thread
/// (lane) was busy. Names that begin with wait_ say how long the computing lane waited for each other
/// lane. Names that begin with bound_ say how the step's critical path divides among the resources.
void add_lanes(Phases& phases, const parallel::Account& account);
/// Adds the phases disk, disk_read and disk_write, which say how long any transfer, a read, or a write was under way.
void add_disk(Phases& phases, const DiskUse& use);

}  // namespace spillway::trainer
