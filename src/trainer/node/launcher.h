// Detects from environment variables which launcher started this process, and as which rank of how many: spillway itself (supervise.h),
// srun, Open MPI, PMI or torchrun. A process that was started inside a Slurm allocation of several tasks, but not by srun, has no launcher;
// the caller refuses that case. Thread-safe.
#pragma once
#include <string>

#include "trainer/node/host.h"

namespace spillway::trainer {

struct Launcher {
  std::string name;  // "spillway", "srun", "Open MPI", "PMI" or "torchrun"; empty without a launcher
  int ranks = 1, rank = 0, local_ranks = 1;
  int bare_slurm_tasks = 0;  // tasks of the Slurm allocation if the process runs in one without a launcher, else 0
  int local_rank = 0;

  /// Returns true if the launcher does not divide the node's cores among its ranks. All ranks of a node may then run on the same cores.
  bool shares_cores() const { return name == "spillway" || name == "torchrun"; }
};
Launcher detect_launcher(const Host& host);
/// Returns whether the launcher has prepared MPI (by PMI or PMIx). srun alone does not, and the ranks can then communicate without MPI.
bool came_with_mpi(const Launcher& launcher, const Host& host);
/// Returns the Launcher for rank `rank` of `ranks` ranks on this node that spillway itself starts.
Launcher own_launcher(int rank, int ranks);

}  // namespace spillway::trainer
