// Options of the other commands alone.
#include "app/flags/cluster.h"
#include "app/flags/field.h"

namespace spillway::app {
namespace {

std::string checked_cluster(const std::string& text, const std::string& what) {
  parse_cluster(text, what);
  return text;
}

std::vector<Option> plan_options() {
  constexpr const char* kGroup = "Plan";
  return {
      {.name = "program",
       .group = kGroup,
       .help = "print the instruction list",
       .field = flag(&PlanConfig::program),
       .commands = on(Command::plan)},
      {.name = "roofline",
       .group = kGroup,
       .help = "print what each kind of kernel of a step would take on an H100 by its FLOPs and bytes: plans for a GPU, bf16 or fp16",
       .field = flag(&PlanConfig::roofline),
       .commands = on(Command::plan)},
      {.name = "cluster",
       .group = kGroup,
       .help = "plan for other machines, a rank a GPU: nodes x GPUs, the rest per node, such as 2x8xH100-80GiB,1TiB,nvme=7TB",
       .field = composite(&PlanConfig::cluster, checked_cluster, [](const std::string& text) { return text; }),
       .commands = on(Command::plan),
       .metavar = "SPEC",
       .default_text = "this node"},
  };
}

std::vector<Option> generate_options() {
  constexpr const char* kGroup = "Text";
  const unsigned one = on(Command::generate), here = on(Command::generate, Command::chat);
  return {
      {.name = "prompt",
       .group = kGroup,
       .help = "what the text starts with",
       .field = text(&GenerateConfig::prompt),
       .commands = one,
       .exclusive = "prompts"},
      {.name = "prompts",
       .group = kGroup,
       .help =
           "a file of prompts, one a line, or of .jsonl {\"prompt\"} or {\"messages\"} a line: answers are lines of JSON, in their order",
       .field = text(&GenerateConfig::prompts),
       .commands = one,
       .metavar = "FILE",
       .exclusive = "prompt"},
      {.name = "batch-size",
       .group = kGroup,
       .help = "of --prompts: as many at once",
       .field = integer(&GenerateConfig::batch_size),
       .commands = one,
       .range = at_least(1)},
      {.name = "system",
       .group = kGroup,
       .help = "what the model is told first",
       .field = text(&ChatConfig::system),
       .commands = on(Command::chat),
       .metavar = "TEXT",
       .default_text = "nothing"},
      {.name = "context",
       .group = kGroup,
       .help = "tokens in view, at most the model's: memory for their keys and values is taken at the start",
       .field = integer(&ChatConfig::context),
       .commands = on(Command::chat),
       .range = at_least(2)},
      {.name = "chat-template",
       .group = kGroup,
       .help = "of conversations: a file, or a name among those of the model folder",
       .field = text(&WritingConfig::chat_template),
       .commands = here,
       .metavar = "FILE|NAME",
       .default_text = "the model folder's"},
      {.name = "temperature",
       .group = kGroup,
       .help = "0 is greedy",
       .field = number(&WritingConfig::temperature),
       .commands = here,
       .range = at_least(0)},
      {.name = "top-k",
       .group = kGroup,
       .help = "sample among the K likeliest tokens; 0 is all",
       .field = integer(&WritingConfig::top_k),
       .commands = here,
       .range = at_least(0)},
      {.name = "top-p",
       .group = kGroup,
       .help = "sample among the likeliest tokens that together have probability P",
       .field = number(&WritingConfig::top_p),
       .commands = here,
       .range = Range{.low = 0, .high = 1, .low_open = true}},
      {.name = "min-p",
       .group = kGroup,
       .help = "leave tokens out that are less likely than this share of the likeliest",
       .field = number(&WritingConfig::min_p),
       .commands = here,
       .default_text = "0",
       .range = Range{.low = 0, .high = 1}},
      {.name = "repetition-penalty",
       .group = kGroup,
       .help = "makes tokens that are there already less likely; below 1 more likely",
       .field = number(&WritingConfig::repetition_penalty),
       .commands = here,
       .default_text = "1",
       .range = above(0)},
      {.name = "stop",
       .group = kGroup,
       .help = "repeatable: a text that ends the answer, and is no part of it",
       .field = text(&WritingConfig::stop),
       .commands = here,
       .metavar = "TEXT",
       .default_text = "none"},
      {.name = "max-tokens",
       .group = kGroup,
       .help = "tokens to generate",
       .field = integer(&WritingConfig::max_tokens),
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
       .help =
           "repeatable: text, rows (.jsonl; with choices: how often the right one is the likeliest), a folder of texts, or token files; "
           "images as train takes them",
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

std::vector<Option> classify_options() {
  constexpr const char* kGroup = "Images";
  const unsigned here = on(Command::classify);
  return {
      {.name = "images",
       .group = kGroup,
       .help = "PNG or JPEG images, each scaled and cut to what the model reads, as images in folders are",
       .field = text(&ClassifyConfig::images),
       .commands = here,
       .metavar = "IMAGE",
       .required = true,
       .positional = true},
      {.name = "top",
       .group = kGroup,
       .help = "likeliest classes of each to print",
       .field = integer(&ClassifyConfig::top),
       .commands = here,
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
      {.name = "merge",
       .group = kGroup,
       .help = "of a run with adapters: the whole model, with what they add in its weights; else the PEFT folder",
       .field = flag(&ExportConfig::merge),
       .commands = here},
      {.name = "ema",
       .group = kGroup,
       .help = "of a run with train --ema: the average of the weights in their place",
       .field = flag(&ExportConfig::ema),
       .commands = here},
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
       .help = "bytes (ids 0-255), or a Hugging Face tokenizer.json or the folder it lies in",
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
       .help = "instead: train a byte-level BPE of so many tokens on --data, as a tokenizer.json in the folder --out",
       .field = integer(&TokenizeConfig::train_vocab),
       .commands = here,
       .metavar = "N",
       .default_text = "off",
       .range = at_least(257)},
  };
}

std::vector<Option> node_options() {
  constexpr const char* kGroup = "Node";
  const unsigned here = on(Command::doctor), both = on(Command::doctor, Command::bench);
  return {
      {.name = "path",
       .group = kGroup,
       .help = "a file of weights (safetensors, torch.save), model folder, token file, file of rows (.jsonl), run folder or checkpoint",
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
      {.name = "sequence-length",
       .group = kGroup,
       .help = "of rows of .jsonl: T, positions of one row",
       .field = integer(&InspectConfig::sequence_length),
       .commands = on(Command::inspect),
       .metavar = "TOKENS",
       .default_text = "the model's, else 1024",
       .range = at_least(1)},
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
  for (auto table : {generate_options(), evaluate_options(), classify_options(), export_options(), tokenize_options(), node_options()}) {
    all.insert(all.end(), table.begin(), table.end());
  }
  return all;
}

}  // namespace spillway::app
