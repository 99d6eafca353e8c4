// Options of the other commands alone.
#include "app/flags/field.h"

namespace spillway::app {
namespace {

std::vector<Option> plan_options() {
  constexpr const char* kGroup = "Plan";
  return {
      {.name = "program",
       .group = kGroup,
       .help = "print the instruction list",
       .field = flag(&PlanConfig::program),
       .commands = on(Command::plan)},
      {.name = "cluster",
       .group = kGroup,
       .help = "plan for other machines: nodes x GPUs, the rest per node",
       .field = no_field(Kind::text),
       .commands = on(Command::plan),
       .metavar = "SPEC",
       .default_text = "this node",
       .instead = "--device-memory with --host-memory, and --nvme PATH:SIZE, are believed: they may be another node's",
       .built = false},
  };
}

std::vector<Option> generate_options() {
  constexpr const char* kGroup = "Text";
  const unsigned here = on(Command::generate);
  return {
      {.name = "prompt",
       .group = kGroup,
       .help = "what the text starts with",
       .field = text(&GenerateConfig::prompt),
       .commands = here,
       .required = true},
      {.name = "temperature",
       .group = kGroup,
       .help = "0 is greedy",
       .field = number(&GenerateConfig::temperature),
       .commands = here,
       .range = at_least(0)},
      {.name = "top-k",
       .group = kGroup,
       .help = "sample among the K likeliest tokens; 0 is all",
       .field = integer(&GenerateConfig::top_k),
       .commands = here,
       .range = at_least(0)},
      {.name = "top-p",
       .group = kGroup,
       .help = "sample among the likeliest tokens that together have probability P",
       .field = number(&GenerateConfig::top_p),
       .commands = here,
       .range = Range{.low = 0, .high = 1, .low_open = true}},
      {.name = "max-tokens",
       .group = kGroup,
       .help = "tokens to generate",
       .field = integer(&GenerateConfig::max_tokens),
       .commands = here,
       .range = at_least(1)},
  };
}

std::vector<Option> evaluate_options() {
  constexpr const char* kGroup = "Data";
  const unsigned here = on(Command::evaluate);
  return {
      {.name = "data",
       .group = kGroup,
       .help = "repeatable: text, a folder of texts, or token files; of cifar-net CIFAR-10's binary folder",
       .field = text(&EvaluateConfig::data),
       .commands = here,
       .metavar = "PATH",
       .required = true},
      {.name = "sequence-length",
       .group = kGroup,
       .help = "T, positions of one row",
       .field = integer(&EvaluateConfig::sequence_length),
       .commands = here,
       .metavar = "TOKENS",
       .default_text = "the model's",
       .range = at_least(1)},
      {.name = "micro-batch-size",
       .group = kGroup,
       .help = "B, rows at a time",
       .field = integer(&EvaluateConfig::micro_batch_size),
       .commands = here,
       .metavar = "ROWS",
       .default_text = "1 (images: 64)",
       .range = at_least(1)},
  };
}

std::vector<Option> export_options() {
  constexpr const char* kGroup = "Export";
  const unsigned here = on(Command::export_model);
  return {
      {.name = "model",
       .group = kGroup,
       .help = "a run folder, a checkpoint or a model folder",
       .field = text(&ExportConfig::model),
       .commands = here,
       .metavar = "RUN",
       .required = true,
       .positional = true},
      {.name = "checkpoint",
       .group = kGroup,
       .help = "which checkpoint of a run: last, best or a step",
       .field = text(&ExportConfig::checkpoint),
       .commands = here,
       .metavar = "last|best|N"},
      {.name = "out",
       .group = kGroup,
       .help = "folder to write",
       .field = text(&ExportConfig::out),
       .commands = here,
       .metavar = "DIR",
       .required = true},
      {.name = "dtype",
       .group = kGroup,
       .help = "of the written weights",
       .field = word(&ExportConfig::dtype, {"fp32", "bf16", "fp16"}),
       .commands = here,
       .default_text = "as stored"},
      {.name = "max-shard-size",
       .group = kGroup,
       .help = "of one safetensors file",
       .field = size(&ExportConfig::max_shard_size_bytes),
       .commands = here,
       .range = above(0)},
  };
}

std::vector<Option> tokenize_options() {
  constexpr const char* kGroup = "Tokens";
  const unsigned here = on(Command::tokenize);
  return {
      {.name = "tokenizer",
       .group = kGroup,
       .help = "bytes (ids 0-255), or a tokenizer.json (not built yet)",
       .field = text(&TokenizeConfig::tokenizer),
       .commands = here,
       .metavar = "bytes|FILE"},
      {.name = "data",
       .group = kGroup,
       .help = "repeatable: text to read",
       .field = text(&TokenizeConfig::data),
       .commands = here,
       .metavar = "PATH"},
      {.name = "out",
       .group = kGroup,
       .help = "token file to write (llm.c's header)",
       .field = text(&TokenizeConfig::out),
       .commands = here,
       .metavar = "X.bin"},
      {.name = "decode",
       .group = kGroup,
       .help = "print a token file's text",
       .field = text(&TokenizeConfig::decode),
       .commands = here,
       .metavar = "X.bin"},
      {.name = "train-vocab",
       .group = kGroup,
       .help = "train a byte-level BPE of N tokens",
       .field = no_field(Kind::integer),
       .commands = here,
       .default_text = "off",
       .instead = "--tokenizer bytes works",
       .built = false},
  };
}

std::vector<Option> node_options() {
  constexpr const char* kGroup = "Node";
  const unsigned here = on(Command::doctor), both = on(Command::doctor, Command::bench);
  return {
      {.name = "path",
       .group = kGroup,
       .help = "a safetensors file, model folder, token file, run folder or checkpoint",
       .field = text(&InspectConfig::path),
       .commands = on(Command::inspect),
       .metavar = "PATH",
       .required = true,
       .positional = true},
      {.name = "verify",
       .group = kGroup,
       .help = "reads every byte of a checkpoint, or of all checkpoints of a run, and compares checksums; damage is exit 4",
       .field = flag(&InspectConfig::verify),
       .commands = on(Command::inspect)},
      {.name = "nvme",
       .group = kGroup,
       .help = "repeatable: a scratch path to look at",
       .field = composite(&NodeConfig::nvme, parse_scratch, print_scratch),
       .commands = both,
       .metavar = "PATH[:SIZE]",
       .default_text = "$SLURM_TMPDIR"},
      {.name = "nvme",
       .group = kGroup,
       .help = "a folder to work in",
       .field = composite(&SelftestConfig::nvme, parse_scratch, print_scratch),
       .commands = on(Command::selftest),
       .metavar = "PATH",
       .default_text = "$SLURM_TMPDIR, or $TMPDIR"},
      {.name = "device",
       .group = kGroup,
       .help = "what computes",
       .field = composite(&SelftestConfig::device, parse_device, [](const std::string& text) { return text; }),
       .commands = on(Command::selftest),
       .metavar = "cpu|cuda",
       .default_text = "best found",
       .unset_word = "auto"},
      {.name = "io-engine",
       .group = kGroup,
       .help = "the engine to try",
       .field = choice(&NodeConfig::io_engine, {{"auto", offload::IoEngineKind::automatic},
                                                {"io_uring", offload::IoEngineKind::io_uring},
                                                {"pread", offload::IoEngineKind::pread}}),
       .commands = both},
      {.name = "run",
       .group = kGroup,
       .help = "a run folder",
       .field = text(&StatusConfig::run),
       .commands = on(Command::status),
       .metavar = "RUN",
       .required = true,
       .positional = true},
      {.name = "what",
       .group = kGroup,
       .help = "what to measure; without a word all, the disk where there is a path",
       .field = word(&BenchConfig::what, {"memory", "matmul", "cpu-adam", "disk", "link", "communicator"}),
       .commands = on(Command::bench),
       .metavar = "memory|matmul|cpu-adam|disk|link|communicator",
       .default_text = "all",
       .positional = true},
      {.name = "threads",
       .group = kGroup,
       .help = "compute threads to measure with",
       .field = integer(&BenchConfig::threads),
       .commands = on(Command::bench),
       .default_text = "the cores granted by affinity, cgroup and SLURM_CPUS_PER_TASK",
       .range = Range{.low = 1, .high = 4096}},
      {.name = "login",
       .group = kGroup,
       .help = "this is a login node: scratch and GPU are never red",
       .field = flag(&DoctorConfig::login),
       .commands = here},
      {.name = "reclaim",
       .group = kGroup,
       .help = "remove what dead runs left on the scratch paths",
       .field = flag(&DoctorConfig::reclaim),
       .commands = here},
  };
}

}  // namespace

std::vector<Option> tool_options() {
  std::vector<Option> all = plan_options();
  for (auto table : {generate_options(), evaluate_options(), export_options(), tokenize_options(), node_options()}) {
    all.insert(all.end(), table.begin(), table.end());
  }
  return all;
}

}  // namespace spillway::app
