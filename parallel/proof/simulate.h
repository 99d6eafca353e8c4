// Predicts how long instruction lists take. The simulated ranks run instructions in the order of the executor, and each
// instruction's work proceeds at given rates. The threads of one rank share its resources: those that compute at the same time
// share the cores, those that use the disk share the disk, and those that copy in the same direction between GPU and host memory
// share the link. Ranks wait for each other in messages and collectives. Pure functions; thread-safe.
#pragma once
#include <functional>
#include <span>

#include "parallel/comm/rank_mesh.h"
#include "parallel/program/program.h"
#include "parallel/program/timing.h"

namespace spillway::parallel {

/// Describes the work of one instruction, as the seconds that the work would take alone: on `cores` cores
/// of the machine, on the disk at its full rate, and on the GPU link at its full rate.
struct Work {
  double cpu_s = 0, cores = 1;
  double read_s = 0, write_s = 0;
  // true: the disk is used before or after the cores, which takes equally long; false: at the same time
  bool in_turn = false;
  // seconds of copying to and from the GPU; each direction has its own copy engine, which works at the same time as everything else
  double to_gpu_s = 0, from_gpu_s = 0;
};

struct Machine {
  double cores = 1;
  /// Tells how fast the disk is when it reads and writes at once: 1 if reads and writes share its rate, 2 if each proceeds as if it were
  /// alone.
  double duplex = 1;
};

/// Simulates one rank, assuming that other ranks are always ready. Returns one Timing per instruction. Timing::disk_us is the time for
/// which the instruction only waited for the disk.
std::vector<Timing> simulate(const List& list, const std::function<Work(const Instruction&)>& work, const Machine& machine);

/// Simulates the lists of all ranks of a mesh, each rank on its own machine. `world` is indexed by world rank. A message or collective
/// begins when all ranks that take part in it have arrived. Each of them does its own work, and the message or collective ends for all of
/// them when the last one is done. The lists must pass check_together(); at a deadlock this throws Error(bug). The simulation takes time
/// that grows with the square of the number of ranks.
std::vector<std::vector<Timing>> simulate_together(std::span<const List* const> world, const Mesh& mesh,
                                                   const std::function<Work(int rank, const Instruction&)>& work, const Machine& machine);

}  // namespace spillway::parallel
