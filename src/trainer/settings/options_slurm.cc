// Defines the options that the slurm command has in addition to those of train.
#include "trainer/settings/field.h"

namespace spillway::trainer {

std::vector<Option> slurm_options() {
  constexpr const char* kJob = "Job";
  const unsigned here = on(Command::slurm);
  return {
      {.name = "nodes",
       .group = kJob,
       .help = "number of nodes of the job",
       .field = integer(&SlurmConfig::nodes),
       .commands = here,
       .range = Range{.low = 1, .high = 65536}},
      {.name = "gpus",
       .group = kJob,
       .help = "GPUs per node; the job gets one task per GPU. 0: no GPUs; the job gets --ranks tasks, spread over all nodes",
       .field = integer(&SlurmConfig::gpus),
       .commands = here,
       .range = Range{.low = 0, .high = 1024}},
      {.name = "time",
       .group = kJob,
       .help = "time limit of one job; a run that needs more is requeued and continues",
       .field = duration(&SlurmConfig::time_s),
       .commands = here,
       .default_text = "the partition's",
       .range = above(0)},
      {.name = "mem",
       .group = kJob,
       .help = "memory per node",
       .field = size(&SlurmConfig::memory_bytes),
       .commands = here,
       .default_text = "the partition's",
       .range = above(0)},
      {.name = "account",
       .group = kJob,
       .help = "account that the job is charged to",
       .field = text(&SlurmConfig::account),
       .commands = here,
       .default_text = "none"},
      {.name = "partition",
       .group = kJob,
       .help = "partition (queue) of the job",
       .field = text(&SlurmConfig::partition),
       .commands = here,
       .default_text = "the cluster's"},
      {.name = "module",
       .group = kJob,
       .help = "repeatable: environment module to load before the run",
       .field = text(&SlurmConfig::modules),
       .commands = here},
  };
}

}  // namespace spillway::trainer
