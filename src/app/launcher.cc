#include "app/launcher.h"

#include <algorithm>
#include <charconv>

namespace spillway::app {
namespace {

int number(const Host& host, const char* name, int otherwise) {
  const auto text = host.env(name);
  int value = otherwise;
  if (text) std::from_chars(text->data(), text->data() + text->size(), value);
  return value;
}

struct Variables {
  const char *name, *ranks, *rank, *local_ranks;
};

// Open MPI before srun: mpirun inside an allocation sets both, and its world is the one we are in.
constexpr Variables kLaunchers[] = {
    {"Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_TASKS_PER_NODE"},
    {"PMI", "PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS"},
};

}  // namespace

Launcher detect_launcher(const Host& host) {
  for (const Variables& v : kLaunchers) {
    if (!host.env(v.ranks) || !host.env(v.rank)) continue;
    return {v.name, std::max(number(host, v.ranks, 1), 1), number(host, v.rank, 0), std::max(number(host, v.local_ranks, 1), 1), 0};
  }
  if (host.env("TORCHELASTIC_RUN_ID") && host.env("WORLD_SIZE") && host.env("RANK")) {
    return {"torchrun", std::max(number(host, "WORLD_SIZE", 1), 1), number(host, "RANK", 0),
            std::max(number(host, "LOCAL_WORLD_SIZE", 1), 1), 0};
  }
  Launcher none;
  none.bare_slurm_tasks = number(host, "SLURM_NTASKS", 0);
  return none;
}

}  // namespace spillway::app
