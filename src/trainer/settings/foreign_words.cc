// Says what to write for the commands and values of other programs, and for their flags that correspond to no single option.
#include <algorithm>

#include "trainer/settings/foreign_names.h"

namespace spillway::trainer {
namespace {

struct Meaning {
  std::string_view theirs, ours;
};

constexpr const char* kNodes =
    "the launcher sets the number of nodes: start the same command on all nodes with srun, torchrun or mpirun; spillway slurm --nodes N "
    "prints such a job script, --ranks N starts N ranks on one node";
constexpr const char* kVerbose =
    "train --log-every 1 prints one line per step, --profile prints a table at the end, --trace FILE writes a trace of some steps; a run's "
    "log.txt keeps all lines";
constexpr const char* kReports =
    "--tensorboard on, the default, writes event files into the run folder; metrics.jsonl there has one line per step and can be read by "
    "pandas.read_json(path, lines=True)";
constexpr const char* kAttention =
    "--attention chooses the kernels: own, whose memory never grows with the square of the length, or cudnn, NVIDIA's on a GPU";
constexpr const char* kUpload =
    "nothing is uploaded: leave it out; spillway export RUN --out DIR writes a Hugging Face folder, and `hf upload ORG/NAME DIR` uploads "
    "it";
constexpr const char* kSize =
    "a model has the size of its preset or of its config.json: leave it out and give --model another preset, or a folder with a "
    "config.json "
    "of this size and --from-scratch";
constexpr const char* kCompile = "leave it out: kernels are not compiled at run time";
constexpr const char* kOverwrite =
    "leave it out: nothing is overwritten; a run that is in --out continues, and another --out starts a new run";
constexpr const char* kSharded =
    "--ranks N starts N ranks; --zero-stage 1, 2 or 3 shards state, gradients and weights over them (3 is full_shard), and auto, the "
    "default, chooses";
constexpr const char* kLength =
    "leave it out: --packing on, the default for .jsonl, joins several documents in a row, so that little padding is left";
constexpr const char* kTensorParallel =
    "tensor and context parallelism are not built: leave it out; --zero-stage 3 shards weights over the ranks, and --pipeline-stages N "
    "splits the layers";
constexpr const char* kCommand = "leave it out: the command says what is done; --validation-data PATH adds validation to train";
constexpr const char* kRemoteCode = "leave it out: code in a model's folder is never run";
constexpr const char* kNoDownload = "leave it out: nothing is downloaded, so no account is needed";
constexpr const char* kWarmupRatio = "write --warmup-steps N, a number of steps: the ratio times --steps";

// Advice about flags that train or other commands which read a model could be given.
constexpr Meaning kAdviceOnFlags[] = {{"nnodes", kNodes},
                                      {"num-nodes", kNodes},
                                      {"node-rank", kNodes},
                                      {"num-machines", kNodes},
                                      {"machine-rank", kNodes},
                                      {"standalone", "leave it out: --ranks N starts N ranks on this node without a launcher"},
                                      {"verbose", kVerbose},
                                      {"debug", kVerbose},
                                      {"report-to", kReports},
                                      {"wandb", kReports},
                                      {"use-wandb", kReports},
                                      {"wandb-log", kReports},
                                      {"wandb-project", kReports},
                                      {"flash-attn", kAttention},
                                      {"flash-attention", kAttention},
                                      {"use-flash-attn", kAttention},
                                      {"use-flash-attention-2", kAttention},
                                      {"attn-implementation", kAttention},
                                      {"push-to-hub", kUpload},
                                      {"hub-model-id", kUpload},
                                      {"hub-token", kNoDownload},
                                      {"use-auth-token", kNoDownload},
                                      {"token", kNoDownload},
                                      {"trust-remote-code", kRemoteCode},
                                      {"overwrite-output-dir", kOverwrite},
                                      {"overwrite", kOverwrite},
                                      {"do-train", kCommand},
                                      {"do-predict", kCommand},
                                      {"fsdp", kSharded},
                                      {"fsdp-config", kSharded},
                                      {"use-fsdp", kSharded},
                                      {"ddp", kSharded},
                                      {"data-parallel-size", kSharded},
                                      {"torch-compile", kCompile},
                                      {"compile", kCompile},
                                      {"use-liger-kernel", kCompile},
                                      {"use-unsloth", kCompile},
                                      {"group-by-length", kLength},
                                      {"length-column-name", kLength},
                                      {"padding", kLength},
                                      {"tensor-parallel-size", kTensorParallel},
                                      {"tensor-model-parallel-size", kTensorParallel},
                                      {"tp", kTensorParallel},
                                      {"context-parallel-size", kTensorParallel},
                                      {"sequence-parallel", kTensorParallel},
                                      {"warmup-ratio", kWarmupRatio},
                                      {"warmup-fraction", kWarmupRatio},
                                      {"n-layer", kSize},
                                      {"n-layers", kSize},
                                      {"n-head", kSize},
                                      {"n-heads", kSize},
                                      {"n-embd", kSize},
                                      {"num-layers", kSize},
                                      {"hidden-size", kSize},
                                      {"num-attention-heads", kSize},
                                      {"dim", kSize}};

// Flags of bitsandbytes. Train quantizes weights only below adapters; the commands that only read a model do it without.
constexpr Meaning kQuantized[] = {{"load-in-4bit", "nf4"}, {"use-4bit", "nf4"}, {"qlora", "nf4"},         {"use-qlora", "nf4"},
                                  {"4bit", "nf4"},         {"int4", "nf4"},     {"load-in-8bit", "8bit"}, {"use-8bit", "8bit"},
                                  {"8bit", "8bit"},        {"int8", "8bit"}};

constexpr Meaning kForeignCommands[] = {
    {"finetune", "train"},     {"fine-tune", "train"},  {"fit", "train"},           {"pretrain", "train"},  {"sft", "train"},
    {"resume", "train"},       {"lora", "train"},       {"launch", "train"},        {"run", "train"},       {"infer", "generate"},
    {"inference", "generate"}, {"predict", "generate"}, {"complete", "generate"},   {"sample", "generate"}, {"test", "selftest"},
    {"validate", "evaluate"},  {"ppl", "evaluate"},     {"perplexity", "evaluate"}, {"convert", "export"},  {"merge", "export"},
    {"save", "export"},        {"quantize", "export"},  {"estimate", "plan"},       {"dry-run", "plan"},    {"memory", "plan"},
    {"encode", "tokenize"},    {"decode", "tokenize"},  {"preprocess", "tokenize"}, {"sbatch", "slurm"},    {"submit", "slurm"},
    {"env", "doctor"},         {"info", "doctor"},      {"show", "inspect"},        {"ls", "inspect"},      {"monitor", "top"},
    {"watch", "top"}};

struct ForeignValue {
  std::string_view option, theirs, ours;
};

constexpr ForeignValue kForeignValues[] = {{"optimizer", "adamw-torch", "adamw"},
                                           {"optimizer", "adamw-torch-fused", "adamw"},
                                           {"optimizer", "adamw-hf", "adamw"},
                                           {"optimizer", "adamw-fused", "adamw"},
                                           {"optimizer", "fusedadam", "adamw"},
                                           {"optimizer", "adamw-8bit", "adamw --moments 8bit"},
                                           {"optimizer", "adamw-bnb-8bit", "adamw --moments 8bit"},
                                           {"optimizer", "adamw8bit", "adamw --moments 8bit"},
                                           {"optimizer", "adam8bit", "adam --moments 8bit"},
                                           {"optimizer", "paged-adamw-8bit", "adamw --moments 8bit --place-optimizer host"},
                                           {"optimizer", "paged-adamw", "adamw --place-optimizer host"},
                                           {"optimizer", "paged-adamw-32bit", "adamw --place-optimizer host"},
                                           {"optimizer", "deepspeedcpuadam", "adamw --place-optimizer host"},
                                           {"optimizer", "momentum", "sgd --momentum 0.9"},
                                           {"lr-schedule", "cosine-with-restarts", "cosine"},
                                           {"lr-schedule", "cosine-with-min-lr", "cosine --min-lr-ratio X"},
                                           {"lr-schedule", "constant-with-warmup", "constant --warmup-steps N"},
                                           {"lr-schedule", "warmup-stable-decay", "wsd"},
                                           {"lr-schedule", "steplr", "step"},
                                           {"precision", "bfloat16", "bf16"},
                                           {"precision", "bf16-mixed", "bf16"},
                                           {"precision", "transformer-engine", "fp8"},
                                           {"precision", "float16", "fp16"},
                                           {"precision", "half", "fp16"},
                                           {"precision", "16", "fp16"},
                                           {"precision", "16-mixed", "fp16"},
                                           {"precision", "float32", "fp32"},
                                           {"precision", "float", "fp32"},
                                           {"precision", "32", "fp32"},
                                           {"precision", "no", "fp32"},
                                           {"precision", "float64", "fp64"},
                                           {"precision", "double", "fp64"},
                                           {"precision", "64", "fp64"},
                                           {"precision", "4bit", "bf16 --lora RANK --base-weights nf4"},
                                           {"precision", "nf4", "bf16 --lora RANK --base-weights nf4"},
                                           {"precision", "int4", "bf16 --lora RANK --base-weights nf4"},
                                           {"precision", "8bit", "bf16 --lora RANK --base-weights 8bit"},
                                           {"precision", "int8", "bf16 --lora RANK --base-weights 8bit"},
                                           {"dtype", "bfloat16", "bf16"},
                                           {"dtype", "float16", "fp16"},
                                           {"dtype", "f16", "fp16"},
                                           {"dtype", "half", "fp16"},
                                           {"dtype", "float32", "fp32"},
                                           {"dtype", "f32", "fp32"},
                                           {"base-weights", "4bit", "nf4"},
                                           {"base-weights", "fp4", "nf4"},
                                           {"base-weights", "int4", "nf4"},
                                           {"base-weights", "int8", "8bit"},
                                           {"base-weights", "bfloat16", "bf16"},
                                           {"moments", "int8", "8bit"},
                                           {"moments", "bfloat16", "bf16"},
                                           {"gradient-dtype", "bfloat16", "bf16"},
                                           {"recompute", "true", "block"},
                                           {"recompute", "full", "block"},
                                           {"recompute", "on", "block"},
                                           {"recompute", "false", "none"},
                                           {"recompute", "off", "none"},
                                           {"recompute", "selective", "auto"},
                                           {"format", "safetensors", "hf"},
                                           {"format", "huggingface", "hf"},
                                           {"format", "pytorch", "hf"},
                                           {"format", "peft", "hf"},
                                           {"format", "llama.cpp", "gguf"},
                                           {"place", "cpu", "host"},
                                           {"place", "ram", "host"},
                                           {"place", "memory", "host"},
                                           {"place", "gpu", "device"},
                                           {"place", "cuda", "device"},
                                           {"place", "disk", "nvme"},
                                           {"place", "ssd", "nvme"},
                                           {"place", "none", "device"},
                                           {"device", "gpu", "cuda"},
                                           {"device", "mps", "cpu"},
                                           {"communicator", "gloo", "auto"},
                                           {"data-format", "sharegpt-messages", "sharegpt"},
                                           {"data-format", "chatml", "messages"},
                                           {"data-format", "openai", "messages"},
                                           {"data-format", "prompt-completion", "completion"},
                                           {"data-format", "instruction", "alpaca"}};

template <size_t N>
std::string_view meaning_of(const Meaning (&words)[N], std::string_view theirs) {
  const auto* const found = std::ranges::find(words, theirs, &Meaning::theirs);
  return found == std::end(words) ? std::string_view() : found->ours;
}

}  // namespace

std::string advice_for(Command command, std::string_view theirs) {
  if (const std::string_view type = meaning_of(kQuantized, theirs); !type.empty() && find_option(command, "base-weights")) {
    const std::string weights = "--base-weights " + std::string(type);
    if (find_option(command, "lora") == nullptr) return "write " + weights;
    return "for QLoRA write " + weights + " --lora RANK, such as " + weights +
           " --lora 16: adapters are trained, and the frozen weights below them are stored in this type";
  }
  return find_option(command, "model") ? std::string(meaning_of(kAdviceOnFlags, theirs)) : "";
}

std::string_view command_for(std::string_view theirs) { return meaning_of(kForeignCommands, theirs); }

std::string_view value_for(std::string_view option, std::string_view theirs) {
  const auto* const found =
      std::ranges::find_if(kForeignValues, [&](const ForeignValue& one) { return one.option == option && one.theirs == theirs; });
  return found == std::end(kForeignValues) ? std::string_view() : found->ours;
}

}  // namespace spillway::trainer
