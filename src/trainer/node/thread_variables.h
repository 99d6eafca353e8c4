// Reads the environment variables by which clusters and OpenMP programs set the number of threads and their CPUs. A value that cannot be
// followed is left out, with the reason; no value ends a run. What each means here:
// - OMP_NUM_THREADS is the number of compute threads of a rank, unless --threads is given. Of "4,2" the first number counts.
// - SLURM_CPUS_PER_TASK is the number of cores of a rank.
// - Lists of CPUs in OMP_PLACES, GOMP_CPU_AFFINITY or KMP_AFFINITY are the CPUs that the ranks of a node may use, within their affinity
// mask.
// - OMP_PROC_BIND=false and KMP_AFFINITY=none or disabled are --bind none, unless --bind is given.
// - SLURM_CPU_BIND is applied by srun, and is already part of the affinity mask.
// If OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY and KMP_AFFINITY contradict each other, the first in this order counts. Thread-safe.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "trainer/node/host.h"

namespace spillway::trainer {

struct ThreadVariable {
  std::string name, value;  // a value longer than 60 bytes is cut, and what is not printable ASCII is replaced by "?"
  std::string unused;       // why the value is not used; empty if it is
  bool wrong = false;       // true if it is not used because it does not have the form that it should have
};

struct ThreadVariables {
  std::optional<int> threads;       // OMP_NUM_THREADS
  std::optional<int> slurm_cpus;    // SLURM_CPUS_PER_TASK
  std::vector<int> cpus;            // the CPUs of a list that the thread may run on, in ascending order; empty without such a list
  bool unbound = false;             // whether threads should not be pinned
  std::vector<ThreadVariable> set;  // the variables that are set
};
/// Returns the variables. `allowed` are the CPUs that the thread may run on, in ascending order.
ThreadVariables thread_variables(const Host& host, const std::vector<int>& allowed);

}  // namespace spillway::trainer
