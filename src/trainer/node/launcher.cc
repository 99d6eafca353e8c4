#include "trainer/node/launcher.h"

#include <algorithm>
#include <charconv>

namespace spillway::trainer {
namespace {

int number(const Host& host, const char* name, int otherwise) {
  const auto text = host.env(name);
  int value = otherwise;
  if (text) std::from_chars(text->data(), text->data() + text->size(), value);
  return value;
}

struct Variables {
  const char *name, *ranks, *rank, *local_ranks, *local_rank;
};

// kLaunchers lists the launchers in the order in which detect_launcher() tries them. spillway is first, because mpirun may have started the
// spillway process that started this one. Open MPI precedes srun, because mpirun inside a Slurm allocation sets the variables of Open MPI
// and of srun, and the ranks are then Open MPI's.
constexpr Variables kLaunchers[] = {
    {"spillway", "SPILLWAY_RANKS", "SPILLWAY_RANK", "SPILLWAY_LOCAL_RANKS", "SPILLWAY_LOCAL_RANK"},
    {"Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_TASKS_PER_NODE", "SLURM_LOCALID"},
    {"PMI", "PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"},
};
constexpr Variables kTorchrun = {"torchrun", "WORLD_SIZE", "RANK", "LOCAL_WORLD_SIZE", "LOCAL_RANK"};

bool has(const Host& host, const Variables& v) { return host.env(v.ranks) && host.env(v.rank); }

Launcher by(const Host& host, const Variables& v) {
  return {.name = v.name,
          .ranks = std::max(number(host, v.ranks, 1), 1),
          .rank = number(host, v.rank, 0),
          .local_ranks = std::max(number(host, v.local_ranks, 1), 1),
          .local_rank = number(host, v.local_rank, 0)};
}

}  // namespace

Launcher detect_launcher(const Host& host) {
  for (const Variables& v : kLaunchers) {
    if (has(host, v)) return by(host, v);
  }
  // WORLD_SIZE and RANK alone do not prove that torchrun started this process, because scripts often export them.
  const bool meant = host.env("TORCHELASTIC_RUN_ID") || host.env("MASTER_ADDR") || host.env("LOCAL_RANK");
  if (meant && has(host, kTorchrun)) return by(host, kTorchrun);
  Launcher none;
  none.bare_slurm_tasks = number(host, "SLURM_NTASKS", 0);
  return none;
}

bool came_with_mpi(const Launcher& launcher, const Host& host) {
  return launcher.name == "Open MPI" || launcher.name == "PMI" || host.env("PMIX_RANK") || host.env("PMI_RANK");
}

Launcher own_launcher(int rank, int ranks) {
  return {.name = kLaunchers[0].name, .ranks = ranks, .rank = rank, .local_ranks = ranks, .local_rank = rank};
}

}  // namespace spillway::trainer
