// Options for memory tiers, speed and ranks. Only the kind of device and a pinned instruction set change the numbers that a run computes.
#include "app/flags/field.h"

namespace spillway::app {
namespace {

constexpr const char *kMemory = "Device and memory", *kSpeed = "Speed", *kRanks = "Ranks and pipeline";
const unsigned kForward = kRuns;

template <class C>
Option place(const char* name, const char* help, PlacementWish C::*member, unsigned commands) {
  return {.name = name,
          .group = kMemory,
          .help = std::string(help) + ": device host nvme auto, or bytes per tier such as device=2GiB,host=rest",
          .field = composite(member, parse_placement, print_placement),
          .commands = commands,
          .metavar = "TIER"};
}

std::vector<Option> memory() {
  return {
      {.name = "device",
       .group = kMemory,
       .help = "what computes; of several ranks each takes a GPU of its own, in turn where there are fewer",
       .field = composite(&ResourceConfig::device, parse_device, [](const std::string& text) { return text; }),
       .commands = kRuns,
       .changes_numbers = true,
       .metavar = "cpu|cuda|cuda:N",
       .default_text = "best found",
       .unset_word = "auto"},
      {.name = "device-memory",
       .group = kMemory,
       .help = "hard budget of the device tier; with --device cpu it is host memory with a budget of its own",
       .field = size(&ResourceConfig::device_memory_bytes),
       .commands = kRuns,
       .default_text = "a GPU's free memory - 512MiB; on the CPU the grant less --host-memory",
       .range = above(0)},
      {.name = "host-memory",
       .group = kMemory,
       .help = "hard budget of the host tier",
       .field = size(&ResourceConfig::host_memory_bytes),
       .commands = kRuns,
       .default_text = "the grant; on the CPU less --device-memory, when that is given"},
      {.name = "nvme",
       .group = kMemory,
       .help = "scratch folder, with a ceiling for all ranks of a node; a missing last component is created",
       .field = composite(&ResourceConfig::nvme, parse_scratch, print_scratch),
       .commands = kRuns,
       .metavar = "PATH[:SIZE]",
       .default_text = "none; SIZE: free space - 5 %"},
      {.name = "allow-network-nvme",
       .group = kMemory,
       .help = "take a network filesystem as nvme",
       .field = flag(&ResourceConfig::allow_network_nvme),
       .commands = kRuns},
      place("place-parameters", "weights", &ResourceConfig::place_parameters, kForward),
      place("place-gradients", "gradients", &TrainConfig::place_gradients, kTrain),
      place("place-optimizer", "optimizer state", &TrainConfig::place_optimizer, kTrain),
      place("place-activations", "what blocks keep between forward and backward", &ResourceConfig::place_activations, kForward),
      {.name = "io-engine",
       .group = kMemory,
       .help = "how nvme is read and written",
       .field = choice(&ResourceConfig::io_engine, {{"auto", offload::IoEngineKind::automatic},
                                                    {"io_uring", offload::IoEngineKind::io_uring},
                                                    {"pread", offload::IoEngineKind::pread}}),
       .commands = kRuns},
      {.name = "durability",
       .group = kMemory,
       .help = "against power loss: sync nvme at checkpoints, or before each step's flip",
       .field = choice(&TrainConfig::durability, {{"checkpoint", Durability::checkpoint}, {"step", Durability::step}}),
       .commands = kTrain},
  };
}

std::vector<Option> speed() {
  return {
      {.name = "prefetch",
       .group = kSpeed,
       .help = "blocks whose weights and activations on nvme are fetched ahead",
       .field = integer(&ResourceConfig::prefetch),
       .commands = kForward,
       .metavar = "BLOCKS",
       .unset_word = "auto",
       .range = at_least(0)},
      {.name = "recompute",
       .group = kSpeed,
       .help = "keep only a block's input and run it again in backward",
       .field = choice(&TrainConfig::recompute, {{"auto", Recompute::automatic}, {"none", Recompute::none}, {"block", Recompute::block}}),
       .commands = kTrain},
      {.name = "optimizer-overlap",
       .group = kSpeed,
       .help =
           "where the optimizer's step stands: after backward, inside it (speculative), inside the next forward, or (auto) partly here and "
           "partly there",
       .field = choice(&TrainConfig::optimizer_overlap, {{"auto", OptimizerOverlap::automatic},
                                                         {"none", OptimizerOverlap::none},
                                                         {"backward", OptimizerOverlap::backward},
                                                         {"forward", OptimizerOverlap::forward}}),
       .commands = kTrain},
      {.name = "threads",
       .group = kSpeed,
       .help = "compute threads of a rank",
       .field = integer(&ResourceConfig::threads),
       .commands = kForward,
       .default_text = "the cores granted by affinity, cgroup and SLURM_CPUS_PER_TASK",
       .range = Range{.low = 1, .high = 4096}},
      {.name = "isa",
       .group = kSpeed,
       .help = "pin the instruction set: of the optimizer, which has the same bits by each, and the most that the CPU's other kernels use",
       .field =
           choice(&ResourceConfig::isa,
                  {{"best", optim::Isa::best}, {"scalar", optim::Isa::scalar}, {"avx2", optim::Isa::avx2}, {"avx512", optim::Isa::avx512}}),
       .commands = kForward,
       .changes_numbers = true},
      {.name = "bind",
       .group = kSpeed,
       .help = "a rank's threads to its share of the cores near its GPU (cores), or to all of that NUMA node (numa); auto is cores where "
               "spillway or torchrun started several, else none",
       .field = word(&RanksConfig::bind, {"auto", "none", "cores", "numa"}),
       .commands = kForward},
  };
}

Option rank_option(const char* name, const char* help, Field field, unsigned commands) {
  return {.name = name, .group = kRanks, .help = help, .field = std::move(field), .commands = commands};
}

std::vector<Option> ranks() {
  Option schedule =
      rank_option("pipeline-schedule",
                  "in which order stages take micro-batches: gpipe, 1f1b, interleaved, zb-h1, zb-v, vertical (all micro-batches of a block "
                  "before the next block), or a CSV file; with one stage 1f1b is one micro-batch after the other",
                  text(&TrainConfig::pipeline_schedule), kTrain);
  schedule.metavar = "NAME|X.csv";
  schedule.default_text = "1f1b; with one stage what is faster";
  Option split = rank_option("pipeline-split", "blocks of each stage", text(&TrainConfig::pipeline_split), kTrain);
  split.metavar = "N,N,..";
  Option stages = rank_option("pipeline-stages", "ranks of a pipeline, each with its part of the blocks",
                              integer(&RanksConfig::pipeline_stages), kForward);
  stages.range = Range{.low = 1, .high = 65535};
  Option chunks = rank_option("pipeline-chunks", "stages a rank holds, as model chunks", integer(&TrainConfig::pipeline_chunks), kTrain);
  chunks.range = Range{.low = 1, .high = 65535};
  chunks.default_text = "2 for interleaved and zb-v, else 1";
  const Option communicator =
      rank_option("communicator",
                  "how ranks talk; local: as threads of one process, which spillway starts; nccl: as with auto, and GPUs over NCCL, which "
                  "auto takes where each rank has a GPU",
                  word(&RanksConfig::communicator, {"auto", "local", "mpi", "nccl"}), kForward);
  Option ranks =
      rank_option("ranks", "processes on this node, which spillway starts where no launcher has", integer(&RanksConfig::ranks), kForward);
  ranks.default_text = "1, or the launcher's";
  ranks.range = Range{.low = 1, .high = 65536};
  Option rendezvous =
      rank_option("rendezvous", "how ranks of different nodes meet: env (MASTER_ADDR, MASTER_PORT), tcp:HOST:PORT, file:PATH",
                  text(&RanksConfig::rendezvous), kForward);
  rendezvous.metavar = "HOW";
  Option timeout = rank_option("timeout", "how long to wait for a peer", duration(&RanksConfig::timeout_s), kForward);
  timeout.default_text = "60s";
  timeout.range = at_least(1);
  return {
      ranks,
      rank_option("zero-stage", "what is sharded over data-parallel ranks", word(&RanksConfig::zero_stage, {"auto", "0", "1", "2", "3"}),
                  kTrain),
      rank_option("zero-stage", "what is sharded over data-parallel ranks: 0 nothing, 3 the weights",
                  word(&RanksConfig::zero_stage, {"auto", "0", "3"}),
                  on(Command::generate, Command::chat, Command::evaluate, Command::classify)),
      stages,
      schedule,
      split,
      chunks,
      communicator,
      rendezvous,
      timeout,
  };
}

}  // namespace

std::vector<Option> memory_options() {
  std::vector<Option> all = memory();
  for (auto table : {speed(), ranks()}) all.insert(all.end(), table.begin(), table.end());
  return all;
}

}  // namespace spillway::app
