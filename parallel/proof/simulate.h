// Predicts how long instruction lists take. Lanes and `after` are obeyed as by the executor, and each instruction's work proceeds at given
// rates. Lanes of a rank that compute at the same time share its cores, those that use its disk share that, and those that copy in the same
// direction between its GPU and host memory share the link. Ranks wait for each other in messages and collectives. Pure functions;
// thread-safe.
#pragma once
#include <functional>
#include <span>

#include "parallel/comm/rank_mesh.h"
#include "parallel/program/program.h"
#include "parallel/program/timing.h"

namespace spillway::parallel {

/// The work of one instruction that runs alone: seconds on `cores` of the machine's cores, and of the disk and the GPU link at their full
/// rates.
struct Work {
  double cpu_s = 0, cores = 1;
  double read_s = 0, write_s = 0;
  bool in_turn = false;                 // the disk is used before or after the cores (both orders take as long); else at the same time
  double to_gpu_s = 0, from_gpu_s = 0;  // each direction has a copy engine of its own and runs beside everything else
};

struct Machine {
  double cores = 1;
  /// Combined rate of the disk for simultaneous reads and writes: 1 if they share it, 2 if each proceeds as if alone.
  double duplex = 1;
};

/// Simulates one rank, assuming that other ranks are always ready. Returns one Timing per instruction; disk_us is the time that it only
/// waited for the disk.
std::vector<Timing> simulate(const List& list, const std::function<Work(const Instruction&)>& work, const Machine& machine);

/// Simulates the lists of all ranks of a mesh, by world rank, each on its own machine. A message or collective begins when all its sides
/// have arrived; each does its own work, and it ends for all when the last is done. Expects lists that pass check_together(), and throws
/// Error(bug) at a deadlock. Time grows with the square of the number of ranks.
std::vector<std::vector<Timing>> simulate_together(std::span<const List* const> world, const Mesh& mesh,
                                                   const std::function<Work(int rank, const Instruction&)>& work, const Machine& machine);

}  // namespace spillway::parallel
