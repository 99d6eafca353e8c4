// How long lists would take, before they are run: their lanes and `after` as the executor obeys them, each instruction's work at given
// rates. Lanes of a rank that compute at once share its cores, those that want its disk at once share it, and those that copy the same way
// between its GPU and host memory share that. Ranks wait for each other where they meet. Pure functions; thread-safe.
#pragma once
#include <functional>
#include <span>

#include "parallel/comm/rank_mesh.h"
#include "parallel/program/program.h"
#include "parallel/program/timing.h"

namespace spillway::parallel {

/// One instruction by itself: seconds on `cores` of the machine's, and of the disk and the link to the GPU at their full rates.
struct Work {
  double cpu_s = 0, cores = 1;
  double read_s = 0, write_s = 0;
  bool in_turn = false;                 // the disk first, then the cores (or the other way round, which takes as long); else both at once
  double to_gpu_s = 0, from_gpu_s = 0;  // each way by an engine of its own, beside all else
};

struct Machine {
  double cores = 1;
  /// What the disk gives to reads and writes together: 1 where they share it, 2 where each goes on as if alone.
  double duplex = 1;
};

/// One Timing an instruction; disk_us is the time it had nothing to do but wait for the disk. The other ranks are always there.
std::vector<Timing> simulate(const List& list, const std::function<Work(const Instruction&)>& work, const Machine& machine);

/// The lists of all ranks of a mesh, by world rank, each on a machine of its own. A message or a meeting begins when all its sides have
/// come to it, each does its own work, and it ends for all when the last has. Expects what check_together() found whole; throws Error(bug)
/// where nobody can go on. Time grows with the square of the ranks.
std::vector<std::vector<Timing>> simulate_together(std::span<const List* const> world, const Mesh& mesh,
                                                   const std::function<Work(int rank, const Instruction&)>& work, const Machine& machine);

}  // namespace spillway::parallel
