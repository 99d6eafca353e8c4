// Defines the options for memory tiers, speed and ranks. Of these, only the kind of device and a pinned instruction set change the numbers
// that a run computes.
#include "trainer/settings/field.h"
#include "trainer/settings/placement_settings.h"

namespace spillway::trainer {
namespace {

constexpr const char *kMemory = "Device and memory", *kSpeed = "Speed", *kRanks = "Ranks and pipeline";
const unsigned kForward = kRuns;

template <class M>
auto placed(M PlacementSettings::*member) {
  return nested(&ResourceConfig::placement, member);
}

Option place(const char* name, const char* help, PlacementWish PlacementSettings::*member, unsigned commands) {
  return {.name = name,
          .group = kMemory,
          .brief = help,
          .help = std::string(help) + ": device, host (RAM), nvme or auto, or bytes per tier such as device=2GiB,host=rest",
          .field = composite(placed(member), parse_placement, print_placement),
          .commands = commands,
          .metavar = "TIER"};
}

// Removes the index of the GPU, because any GPU counts as the same.
std::optional<std::string> any_gpu(const TrainConfig& config) {
  const std::string device = config.device.value_or("auto");
  return device.substr(0, device.find(':'));
}

std::vector<Option> memory() {
  return {
      {.name = "device",
       .group = kMemory,
       .brief = "processor that computes",
       .help = "processor that computes; with several ranks each uses its own GPU, or, if there are fewer GPUs than ranks, several ranks "
               "share one",
       .field = composite(&ResourceConfig::device, parse_device, [](const std::string& text) { return text; }),
       .commands = kRuns,
       .changes_numbers = true,
       .metavar = "cpu|cuda|cuda:N",
       .default_text = "best found",
       .unset_word = "auto",
       .set_by_cluster = true,
       .counts_as = any_gpu},
      {.name = "device-memory",
       .group = kMemory,
       .brief = "budget of the device (GPU memory)",
       .help = "hard budget of the device tier (GPU memory), per rank; with --device cpu this tier is host memory with its own budget",
       .field = size(&ResourceConfig::device_memory_bytes),
       .commands = kRuns,
       .default_text = "GPU: free memory - 512MiB; CPU: the grant less --host-memory",
       .range = above(0),
       .of_one_node = true,
       .set_by_cluster = true},
      {.name = "host-memory",
       .group = kMemory,
       .brief = "budget of host memory",
       .help = "hard budget of the host tier, per rank; the grant is min(available RAM, cgroup limit, Slurm's memory) / ranks of the node "
               "- 300MiB",
       .field = size(&ResourceConfig::host_memory_bytes),
       .commands = kRuns,
       .default_text = "the grant; on the CPU less --device-memory, if that is given",
       .of_one_node = true,
       .set_by_cluster = true},
      {.name = "nvme",
       .group = kMemory,
       .brief = "scratch folder on a local drive",
       .help = "repeatable: scratch folder on a local drive for offloaded data; SIZE limits what all ranks of a node together write there; "
               "the folder's parent must exist",
       .field = composite(&ResourceConfig::nvme, parse_scratch, print_scratch),
       .commands = kRuns,
       .metavar = "PATH[:SIZE]",
       .default_text = "none; SIZE: free space - 5 %",
       .of_one_node = true,
       .set_by_cluster = true},
      {.name = "allow-network-nvme",
       .group = kMemory,
       .help = "accept a network filesystem as --nvme (slow)",
       .field = flag(&ResourceConfig::allow_network_nvme),
       .commands = kRuns},
      place("place-parameters", "where weights are stored", &PlacementSettings::parameters, kForward),
      place("place-gradients", "where gradients are stored", &PlacementSettings::gradients, kTrain),
      place("place-optimizer", "where optimizer state is stored", &PlacementSettings::optimizer, kTrain),
      place("place-activations", "where activations wait for the backward pass", &PlacementSettings::activations, kForward),
      {.name = "io-engine",
       .group = kMemory,
       .help = "interface that reads and writes the nvme files; auto: io_uring where the kernel allows it, else pread",
       .field = choice(&ResourceConfig::io_engine, {{"auto", offload::IoEngineKind::automatic},
                                                    {"io_uring", offload::IoEngineKind::io_uring},
                                                    {"pread", offload::IoEngineKind::pread}}),
       .commands = kRuns,
       .of_one_node = true},
      {.name = "durability",
       .group = kMemory,
       .help = "when nvme files are synced to survive a power loss: at each checkpoint, or before each optimizer step is committed",
       .field = choice(&TrainConfig::durability, {{"checkpoint", Durability::checkpoint}, {"step", Durability::step}}),
       .commands = kTrain},
  };
}

std::vector<Option> speed() {
  return {
      {.name = "prefetch",
       .group = kSpeed,
       .help = "number of blocks whose weights and activations are read from nvme before they are needed",
       .field = integer(placed(&PlacementSettings::prefetch)),
       .commands = kForward,
       .metavar = "BLOCKS",
       .unset_word = "auto",
       .range = at_least(0)},
      {.name = "recompute",
       .group = kSpeed,
       .help = "gradient checkpointing; block: keep only the input of each block and run the block again in the backward pass",
       .field = choice(placed(&PlacementSettings::recompute),
                       {{"auto", Recompute::automatic}, {"none", Recompute::none}, {"block", Recompute::block}}),
       .commands = kTrain},
      {.name = "optimizer-overlap",
       .group = kSpeed,
       .help = "when the optimizer steps: after the backward pass (none), speculatively during it (backward), during the next forward pass "
               "(forward), or each where it fits best (auto)",
       .field = choice(placed(&PlacementSettings::overlap), {{"auto", OptimizerOverlap::automatic},
                                                             {"none", OptimizerOverlap::none},
                                                             {"backward", OptimizerOverlap::backward},
                                                             {"forward", OptimizerOverlap::forward}}),
       .commands = kTrain},
      {.name = "threads",
       .group = kSpeed,
       .help = "compute threads per rank",
       .field = integer(&ResourceConfig::threads),
       .commands = kForward,
       .default_text = "the cores granted by affinity, cgroup and SLURM_CPUS_PER_TASK, or OMP_NUM_THREADS if that is less",
       .range = Range{.low = 1, .high = 4096},
       .of_one_node = true},
      {.name = "isa",
       .group = kSpeed,
       .help = "instruction set that the optimizer must use (its results have the same bits with each); other CPU kernels use this one or "
               "an older one, and their results may differ from set to set",
       .field =
           choice(&ResourceConfig::isa,
                  {{"best", optim::Isa::best}, {"scalar", optim::Isa::scalar}, {"avx2", optim::Isa::avx2}, {"avx512", optim::Isa::avx512}}),
       .commands = kForward,
       .changes_numbers = true},
      {.name = "bind",
       .group = kSpeed,
       .help = "pin the threads of a rank to cores near its GPU; cores: to the rank's share of these cores; numa: to all cores of the "
               "GPU's NUMA node; auto: cores if spillway or torchrun started several ranks, else none",
       .field = word(&RanksConfig::bind, {"auto", "none", "cores", "numa"}),
       .commands = kForward,
       .of_one_node = true},
  };
}

Option rank_option(const char* name, const char* help, Field field, unsigned commands) {
  return {.name = name, .group = kRanks, .help = help, .field = std::move(field), .commands = commands};
}

std::vector<Option> ranks() {
  Option schedule =
      rank_option("pipeline-schedule",
                  "order in which pipeline stages run micro-batches: gpipe, 1f1b, interleaved, zb-h1, zb-v, vertical (all micro-batches of "
                  "a block before the next block), or a CSV file; with one stage, 1f1b runs one micro-batch after the other",
                  text(&TrainConfig::pipeline_schedule), kTrain);
  schedule.metavar = "NAME|X.csv";
  schedule.default_text = "1f1b; with one stage the faster order";
  Option split =
      rank_option("pipeline-split", "number of blocks in each pipeline stage", text(placed(&PlacementSettings::pipeline_split)), kTrain);
  split.metavar = "N,N,..";
  Option stages = rank_option("pipeline-stages", "pipeline parallelism: number of ranks over which the blocks of a model are split",
                              integer(&RanksConfig::pipeline_stages), kForward);
  stages.range = Range{.low = 1, .high = 65535};
  Option chunks =
      rank_option("pipeline-chunks", "model chunks (virtual pipeline stages) per rank", integer(&TrainConfig::pipeline_chunks), kTrain);
  chunks.range = Range{.low = 1, .high = 65535};
  chunks.default_text = "2 for interleaved and zb-v, else 1";
  const Option communicator = rank_option("communicator",
                                          "how ranks exchange data; local: ranks are threads of one process that spillway starts; nccl: "
                                          "GPUs must use NCCL, the rest as with auto; auto uses NCCL if each rank has its own GPU",
                                          word(&RanksConfig::communicator, {"auto", "local", "mpi", "nccl"}), kForward);
  Option ranks = rank_option("ranks", "processes on this node; spillway starts them unless a launcher (srun, torchrun, mpirun) did",
                             integer(&RanksConfig::ranks), kForward);
  ranks.default_text = "1, or the launcher's";
  ranks.range = Range{.low = 1, .high = 65536};
  ranks.brief = "processes on this node";
  ranks.set_by_launcher = ranks.set_by_cluster = true;
  Option rendezvous =
      rank_option("rendezvous", "how ranks of different nodes find each other: env (MASTER_ADDR, MASTER_PORT), tcp:HOST:PORT or file:PATH",
                  text(&RanksConfig::rendezvous), kForward);
  rendezvous.metavar = "HOW";
  rendezvous.of_one_node = true;
  Option timeout =
      rank_option("timeout", "how long to wait for another rank before the run fails", duration(&RanksConfig::timeout_s), kForward);
  timeout.default_text = "60s";
  timeout.range = at_least(1);
  Option zero = rank_option(
      "zero-stage", "ZeRO, what is sharded over data-parallel ranks: 0 nothing, 1 optimizer state, 2 also gradients, 3 also weights",
      choice(placed(&PlacementSettings::zero_stage), {{"0", 0}, {"1", 1}, {"2", 2}, {"3", 3}}), kTrain);
  Option zero_without_training = rank_option("zero-stage", "ZeRO, what is sharded over data-parallel ranks: 0 nothing, 3 weights",
                                             choice(placed(&PlacementSettings::zero_stage), {{"0", 0}, {"3", 3}}),
                                             on(Command::generate, Command::chat, Command::evaluate, Command::classify));
  zero.brief = "shard: 1 optimizer, 2 gradients, 3 weights";
  zero.unset_word = zero_without_training.unset_word = "auto";
  return {
      ranks, zero, zero_without_training, stages, schedule, split, chunks, communicator, rendezvous, timeout,
  };
}

}  // namespace

std::vector<Option> memory_options() {
  std::vector<Option> all = memory();
  for (auto table : {speed(), ranks()}) all.insert(all.end(), table.begin(), table.end());
  return all;
}

}  // namespace spillway::trainer
