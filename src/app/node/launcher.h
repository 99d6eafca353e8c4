// Who started us, as one of how many ranks: spillway itself (supervise.h), srun's step variables, Open MPI's, PMI's or torchrun's. Started
// bare inside a Slurm allocation of several tasks there is no launcher, which the caller refuses. Thread-safe.
#pragma once
#include <string>

#include "app/node/host.h"

namespace spillway::app {

struct Launcher {
  std::string name;  // "spillway", "srun", "Open MPI", "PMI", "torchrun"; empty: none
  int ranks = 1, rank = 0, local_ranks = 1;
  int bare_slurm_tasks = 0;  // tasks of the allocation we were started in without srun
  int local_rank = 0;

  /// The ranks of a node may all run on the same cores: nobody has dealt them.
  bool shares_cores() const { return name == "spillway" || name == "torchrun"; }
};
Launcher detect_launcher(const Host& host);
/// A bare srun brings no MPI, and none is needed.
bool came_with_mpi(const Launcher& launcher, const Host& host);
/// A rank of this node's that spillway itself starts.
Launcher own_launcher(int rank, int ranks);

}  // namespace spillway::app
